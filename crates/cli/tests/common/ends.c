/* Threads that use a ring and end. The first argument names what. */
#include "check.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct ring {
    struct io_uring_params p;
    struct io_uring_sqe *sqes;
    char *words;
    int fd;
};

static void make(struct ring *r)
{
    const int rights = PROT_READ | PROT_WRITE;
    memset(&r->p, 0, sizeof r->p);
    r->fd = syscall(SYS_io_uring_setup, 8, &r->p);
    CHECK(r->fd >= 0);
    r->words = mmap(0, r->p.sq_off.array + 32, rights, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
    r->sqes = mmap(0, 8 * sizeof *r->sqes, rights, MAP_SHARED, r->fd, IORING_OFF_SQES);
    CHECK(r->words != MAP_FAILED && r->sqes != MAP_FAILED);
}

static void submit(struct ring *r, int op, int fd, unsigned events)
{
    unsigned *tail = (unsigned *)(r->words + r->p.sq_off.tail), n = *tail & 7;
    memset(&r->sqes[n], 0, sizeof r->sqes[n]);
    r->sqes[n].opcode = op;
    r->sqes[n].fd = fd;
    r->sqes[n].poll32_events = events;
    ((unsigned *)(r->words + r->p.sq_off.array))[n] = n;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, r->fd, 1, 0, 0, 0, 0) == 1);
}

static int result(struct ring *r)
{
    unsigned *head = (unsigned *)(r->words + r->p.cq_off.head);
    unsigned *tail = (unsigned *)(r->words + r->p.cq_off.tail), mask = r->p.cq_entries - 1;
    while (__atomic_load_n(tail, __ATOMIC_ACQUIRE) == *head)
        CHECK(syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) == 0);
    struct io_uring_cqe *cqes = (void *)(r->words + r->p.cq_off.cqes);
    int res = cqes[*head & mask].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return res;
}

static struct ring ring;
static int both[2];

static void *polls(void *none)
{
    submit(&ring, IORING_OP_POLL_ADD, both[0], POLLIN);
    return none;
}

/* The request of a thread that has ended can only fail. */
static void cancelled(void)
{
    pthread_t t;
    CHECK(pipe(both) == 0);
    make(&ring);
    CHECK(pthread_create(&t, 0, polls, 0) == 0 && pthread_join(t, 0) == 0);
    /* The join does not wait for all of the thread's end. */
    usleep(50000);
    CHECK(write(both[1], "x", 1) == 1);
    CHECK(result(&ring) == -ECANCELED);
    submit(&ring, IORING_OP_POLL_ADD, both[0], POLLIN);
    CHECK(result(&ring) == POLLIN);
}

enum { AT_ONCE = 100 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all, done;

static void *uses(void *none)
{
    pthread_barrier_wait(&all);
    CHECK(pthread_mutex_lock(&lock) == 0);
    submit(&ring, IORING_OP_NOP, -1, 0);
    CHECK(result(&ring) == 0);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    pthread_barrier_wait(&done);
    return none;
}

/* Pages that the process has, and its mappings. */
static void sizes(long *pages, long *maps)
{
    char line[4096];
    FILE *f;
    usleep(100000);
    CHECK((f = fopen("/proc/self/statm", "r")) && fscanf(f, "%*d %ld", pages) == 1);
    fclose(f);
    CHECK(f = fopen("/proc/self/maps", "r"));
    for (*maps = 0; fgets(line, sizeof line, f);)
        ++*maps;
    fclose(f);
}

/* Threads, joined and detached, many at a time. */
static void many(int count)
{
    long pages, maps, now_pages, now_maps;
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 1 << 17) == 0);
    pthread_barrier_init(&all, 0, AT_ONCE);
    pthread_barrier_init(&done, 0, AT_ONCE + 1);
    make(&ring);
    sizes(&pages, &maps);
    for (int i = 0; i < count; i += AT_ONCE) {
        pthread_t t[AT_ONCE];
        for (int n = 0; n < AT_ONCE; n++)
            CHECK(pthread_create(&t[n], &small, uses, 0) == 0);
        pthread_barrier_wait(&done);
        for (int n = 0; n < AT_ONCE; n++)
            CHECK((n & 1 ? pthread_join(t[n], 0) : pthread_detach(t[n])) == 0);
    }
    sizes(&now_pages, &now_maps);
    printf("%ld pages, then %ld; %ld mappings, then %ld\n", pages, now_pages, maps, now_maps);
    /* A thread may leave memory of some 2 KiB to the next, and C libraries keep stacks. */
    CHECK(now_pages < pages + 10 * AT_ONCE && now_maps < maps + 3 * AT_ONCE);
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    if (!strcmp(argv[1], "cancelled"))
        cancelled();
    else
        many(atoi(argv[1]));
    fflush(stdout);
    return 0;
}
