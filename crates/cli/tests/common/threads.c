/* What a C library does to the threads that it knows, while there are threads behind a ring: a
 * worker waits in a read of a pipe, and an SQ thread polls. The first argument names what. */
#include "check.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct io_uring_params p;
static struct io_uring_sqe *sqes;
static char *words;
static int ring, both[2];
static char byte;

static void make(unsigned flags)
{
    const int rights = PROT_READ | PROT_WRITE;
    memset(&p, 0, sizeof p);
    p.flags = flags;
    p.sq_thread_idle = 1000;
    ring = syscall(SYS_io_uring_setup, 8, &p);
    CHECK(ring >= 0);
    words = mmap(0, p.sq_off.array + 32, rights, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    sqes = mmap(0, 8 * sizeof *sqes, rights, MAP_SHARED, ring, IORING_OFF_SQES);
    CHECK(words != MAP_FAILED && sqes != MAP_FAILED);
}

/* Submits a request; `async`: a worker does it. */
static void submit(int op, int fd, const void *at, unsigned len, int async)
{
    unsigned *tail = (unsigned *)(words + p.sq_off.tail), n = *tail & 7;
    memset(&sqes[n], 0, sizeof sqes[n]);
    sqes[n].opcode = op;
    sqes[n].fd = fd;
    sqes[n].addr = (unsigned long)at;
    sqes[n].len = len;
    sqes[n].flags = async ? IOSQE_ASYNC : 0;
    ((unsigned *)(words + p.sq_off.array))[n] = n;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    unsigned wake = p.flags & IORING_SETUP_SQPOLL ? IORING_ENTER_SQ_WAKEUP : 0;
    CHECK(syscall(SYS_io_uring_enter, ring, 1, 0, wake, 0, 0) == 1);
}

/* Waits for a completion, and returns its result. */
static int result(void)
{
    unsigned *head = (unsigned *)(words + p.cq_off.head);
    unsigned *tail = (unsigned *)(words + p.cq_off.tail), mask = p.cq_entries - 1;
    while (__atomic_load_n(tail, __ATOMIC_ACQUIRE) == *head)
        CHECK(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) == 0);
    int res = ((struct io_uring_cqe *)(words + p.cq_off.cqes))[*head & mask].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return res;
}

static void begin(void)
{
    CHECK(pipe(both) == 0);
    make(IORING_SETUP_SQPOLL);
    submit(IORING_OP_NOP, -1, 0, 0, 0);
    CHECK(result() == 0);
    make(0);
    submit(IORING_OP_READ, both[0], &byte, 1, 1);
    usleep(20000);
}

static void end(void)
{
    CHECK(write(both[1], "x", 1) == 1 && result() == 1 && byte == 'x');
}

static void *uses(void *unused)
{
    usleep(50000);
    submit(IORING_OP_NOP, -1, 0, 0, 0);
    /* The read of the first thread may have ended with it. */
    int res = result();
    CHECK(res == 0 || res == -ECANCELED || res == -EINTR);
    return unused;
}

static void *sleeps(void *unused)
{
    for (;;)
        pause();
    return unused;
}

/* setresuid(2) is the process's: the C library has each of its threads call it. */
static int identity(void)
{
    pthread_t thread;
    if (getuid() != 0)
        return 0;
    int secret = open("secret", O_CREAT | O_WRONLY, 0600);
    CHECK(secret >= 0 && close(secret) == 0);
    begin();
    CHECK(pthread_create(&thread, 0, sleeps, 0) == 0);
    CHECK(setresuid(-1, 65534, 0) == 0);
    submit(IORING_OP_OPENAT, AT_FDCWD, "secret", 0, 1);
    CHECK(result() == -EACCES);
    CHECK(setresuid(-1, 0, 0) == 0);
    submit(IORING_OP_OPENAT, AT_FDCWD, "secret", 0, 1);
    CHECK(result() >= 0);
    CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    end();
    return 0;
}

/* The process ends with the last thread that the program has made. */
static int last(void)
{
    pthread_t thread;
    begin();
    CHECK(pthread_create(&thread, 0, uses, 0) == 0 && pthread_detach(thread) == 0);
    pthread_exit(0);
}

static int prepared, in_parent, in_child;

static void prepare(void)
{
    prepared++;
}

static void parent(void)
{
    in_parent++;
}

static void child(void)
{
    in_child++;
}

/* Handlers run once for each fork of the program's. */
static int forks(void)
{
    int status;
    CHECK(pthread_atfork(prepare, parent, child) == 0);
    begin();
    CHECK(prepared == 0 && in_parent == 0);
    for (int n = 1; n < 4; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            CHECK(prepared == n && in_child == 1 && in_parent == n - 1);
            make(0);
            submit(IORING_OP_NOP, -1, 0, 0, 0);
            _exit(result());
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(prepared == n && in_child == 0 && in_parent == n);
    }
    end();
    return 0;
}

static void *enters(void *unused)
{
    for (;;)
        if (syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0)
            pthread_testcancel();
        else
            usleep(100);
    return unused;
}

/* A thread is cancelled at its next cancellation point, and its ring goes on. */
static int cancelled(void)
{
    pthread_t thread;
    void *how;
    begin();
    CHECK(pthread_create(&thread, 0, enters, 0) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(write(both[1], "x", 1) == 1);
    CHECK(pthread_join(thread, &how) == 0 && how == PTHREAD_CANCELED);
    CHECK(result() == 1 && byte == 'x');
    submit(IORING_OP_READ, both[0], &byte, 1, 1);
    end();
    return 0;
}

static int signals;

static void counted(int signal)
{
    (void)signal;
    __sync_fetch_and_add(&signals, 1);
}

/* A signal of the process's comes to a thread of the program's, also where all but one block it. */
static int signalled(void)
{
    struct sigaction action = {.sa_handler = counted};
    pthread_t thread;
    sigset_t set;
    CHECK(sigaction(SIGUSR1, &action, 0) == 0);
    begin();
    CHECK(pthread_create(&thread, 0, sleeps, 0) == 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, 0) == 0);
    for (int n = 1; n < 50; n++) {
        CHECK(kill(getpid(), SIGUSR1) == 0);
        for (int i = 0; i < 5000 && signals < n; i++)
            usleep(100);
        CHECK(signals == n);
    }
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
    end();
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "identity"))
        return identity();
    if (!strcmp(what, "last"))
        return last();
    if (!strcmp(what, "forks"))
        return forks();
    if (!strcmp(what, "cancelled"))
        return cancelled();
    if (!strcmp(what, "signalled"))
        return signalled();
    return 2;
}
