/* Forks while threads are in calls on rings. Each child makes a ring and has a NOP on it. */
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int over;

struct ring {
    struct io_uring_params p;
    char *at;
    int fd;
};

static int make(struct ring *r)
{
    memset(r, 0, sizeof *r);
    r->fd = syscall(SYS_io_uring_setup, 4, &r->p);
    if (r->fd < 0)
        return 1;
    r->at = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
    /* The SQEs are zero: NOPs. */
    return r->at == MAP_FAILED;
}

static int nop(struct ring *r)
{
    unsigned *tail = (unsigned *)(r->at + r->p.sq_off.tail);
    unsigned *head = (unsigned *)(r->at + r->p.cq_off.head);
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
        return 1;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return 0;
}

static void *calls(void *unused)
{
    struct ring r;
    if (make(&r))
        return NULL;
    while (!over && !nop(&r)) {
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, calls, NULL);
    for (int i = 0; i < 100; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            struct ring r;
            /* SIGALRM ends one that hangs. */
            alarm(20);
            _exit(make(&r) ? 1 : nop(&r) ? 2 : 0);
        }
        if (waitpid(pid, &status, 0) != pid || status != 0) {
            printf("child %d: %#x\n", i, status);
            return 1;
        }
    }
    over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
