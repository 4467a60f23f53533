/* Polls a ring by each function of the C library, also by a duplicate of its descriptor. With
 * BY_NUMBER by syscall(2), too. */
#include "check.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>

static struct io_uring_params p;
static struct io_uring_sqe *sqes;
static char *sq, *cq;

/* Submits a request that is done in 20 ms. */
static int submit(int fd)
{
    static long long time[2] = {0, 20000000};
    unsigned *tail = (unsigned *)(sq + p.sq_off.tail);
    memset(sqes, 0, sizeof *sqes);
    sqes->opcode = IORING_OP_TIMEOUT;
    sqes->fd = -1;
    sqes->addr = (unsigned long)time;
    sqes->len = 1;
    ((unsigned *)(sq + p.sq_off.array))[*tail & (p.sq_entries - 1)] = 0;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    return syscall(426, fd, 1, 0, 0, 0, 0);
}

/* Takes a completion; returns whether there was just one. */
static int take(void)
{
    unsigned *head = (unsigned *)(cq + p.cq_off.head), *tail = (unsigned *)(cq + p.cq_off.tail);
    int one = __atomic_load_n(tail, __ATOMIC_ACQUIRE) == *head + 1;
    __atomic_store_n(head, *tail, __ATOMIC_RELEASE);
    return one;
}

static void on_alarm(int signo)
{
    (void)signo;
}

static int interrupted(int fd, int set)
{
    struct itimerval soon = {{0, 0}, {0, 20000}};
    struct pollfd one = {fd, POLLIN, 0};
    struct epoll_event event;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    CHECK(setitimer(ITIMER_REAL, &soon, 0) == 0);
    CHECK(poll(&one, 1, 5000) == -1 && errno == EINTR);
    CHECK(setitimer(ITIMER_REAL, &soon, 0) == 0);
    CHECK(epoll_wait(set, &event, 1, 5000) == -1 && errno == EINTR);
    return 0;
}

int main(void)
{
    const int both = PROT_READ | PROT_WRITE;
    struct timespec second = {1, 0}, none = {0, 0}, left = {5, 0};
    struct timeval long_enough = {5, 0};
    struct epoll_event event = {EPOLLIN, {0}};
    sigset_t no_signals;
    fd_set in;
    int fd, copy, moved, set, found;

    fd = syscall(425, 4, &p, 0, 0, 0, 0);
    CHECK(fd >= 0);
    /* Mapped one by one, as before there was IORING_FEAT_SINGLE_MMAP. */
    sq = mmap(0, p.sq_off.array + p.sq_entries * 4, both, MAP_SHARED, fd, IORING_OFF_SQ_RING);
    cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), both, MAP_SHARED, fd,
              IORING_OFF_CQ_RING);
    sqes = mmap(0, p.sq_entries * sizeof *sqes, both, MAP_SHARED, fd, IORING_OFF_SQES);
    CHECK(sq != MAP_FAILED && cq != MAP_FAILED && sqes != MAP_FAILED);

    struct pollfd one = {fd, POLLIN, 0};
    CHECK(poll(&one, 1, 10) == 0);
    CHECK(submit(fd) == 1 && poll(&one, 1, 5000) == 1 && one.revents == POLLIN && take());
    sigemptyset(&no_signals);
    CHECK(submit(fd) == 1 && ppoll(&one, 1, &second, &no_signals) == 1 && take());
    CHECK(ppoll(&one, 1, &none, 0) == 0);
#ifdef BY_NUMBER
    /* The calls themselves return the time that is left. */
    CHECK(submit(fd) == 1 && syscall(SYS_ppoll, &one, 1, &left, 0, 8) == 1 && take());
    CHECK(left.tv_sec == 4 && left.tv_nsec > 0);
#endif
    FD_ZERO(&in);
    FD_SET(fd, &in);
    CHECK(submit(fd) == 1 && select(fd + 1, &in, 0, 0, &long_enough) == 1);
    CHECK(FD_ISSET(fd, &in) && take());
    CHECK(submit(fd) == 1 && pselect(fd + 1, &in, 0, 0, &second, &no_signals) == 1 && take());
    CHECK(pselect(fd + 1, &in, 0, 0, &none, 0) == 0 && !FD_ISSET(fd, &in));
#ifdef BY_NUMBER
    FD_SET(fd, &in);
    CHECK(submit(fd) == 1 && syscall(SYS_pselect6, fd + 1, &in, 0, 0, &left, 0) == 1 && take());
    CHECK(left.tv_sec == 4 && left.tv_nsec > 0);
#endif

    copy = dup(fd);
    moved = fcntl(copy, F_DUPFD, 100);
    CHECK(copy >= 0 && moved >= 100 && close(copy) == 0);
    CHECK(submit(moved) == 1);
    one.fd = moved;
    CHECK(poll(&one, 1, 5000) == 1 && take());
    CHECK(dup2(moved, copy) == copy && dup3(moved, 101, O_CLOEXEC) == 101);
    CHECK(submit(101) == 1);

    set = epoll_create1(0);
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    /* The kernel interrupts the wait to complete the request. */
    while ((found = epoll_wait(set, &event, 1, 5000)) == -1 && errno == EINTR)
        ;
    CHECK(found == 1 && take());
    if (interrupted(fd, set))
        return 1;
    CHECK(poll(&one, 1 << 30, 0) == -1);
    one.fd = fd;
    CHECK(poll((struct pollfd *)8, 1, 0) == -1 && errno == EFAULT);
    CHECK(close(moved) == 0 && close(101) == 0 && close(copy) == 0 && close(fd) == 0);
    CHECK(poll(&one, 1, 0) == 1 && one.revents == POLLNVAL);
    return 0;
}
