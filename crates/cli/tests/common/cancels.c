/* Cancels threads in cancellation points, and uses rings by the functions that are such points. */
#include "check.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int both[2];

static void *reads(void *unused)
{
    char byte;
    read(both[0], &byte, 1);
    return unused;
}

static void *waits(void *set)
{
    struct epoll_event event;
    epoll_wait(*(int *)set, &event, 1, -1);
    return 0;
}

static int cancelled(void *(*run)(void *), void *word)
{
    pthread_t thread;
    void *end;
    CHECK(pthread_create(&thread, 0, run, word) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &end) == 0);
    return end != PTHREAD_CANCELED;
}

static int ring(void)
{
    struct io_uring_params p = {0};
    struct epoll_event event = {EPOLLIN, {0}};
    int fd = syscall(425, 8, &p), set = epoll_create1(0), other;
    CHECK(fd >= 0);
    char *words = mmap(0, p.sq_off.array + 32, 3, MAP_SHARED, fd, IORING_OFF_SQ_RING);
    struct io_uring_sqe *sqe = mmap(0, 8 * sizeof *sqe, 3, MAP_SHARED, fd, IORING_OFF_SQES);
    CHECK(words != MAP_FAILED && sqe != MAP_FAILED);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(set, &event, 1, 10) == 0);
    CHECK(cancelled(waits, &set) == 0);
    memset(sqe, 0, sizeof *sqe);
    *(unsigned *)(words + p.sq_off.tail) = 1;
    CHECK(syscall(426, fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1);
    CHECK(epoll_wait(set, &event, 1, 10) == 1);
    CHECK(munmap(words, p.sq_off.array + 32) == 0 && munmap(sqe, 8 * sizeof *sqe) == 0);
    CHECK(close(fd) == 0 && close(set) == 0);
    /* The number is another file's. */
    other = open("/dev/null", O_RDONLY);
    CHECK(other == fd && syscall(426, other, 0, 0, 0, 0, 0) == -1 && errno == EOPNOTSUPP);
    return close(other);
}

int main(void)
{
    CHECK(pipe(both) == 0 && cancelled(reads, 0) == 0);
    for (int n = 0; n < 20; n++)
        if (ring())
            return 1;
    return cancelled(reads, 0);
}
