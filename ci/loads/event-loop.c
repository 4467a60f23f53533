/* An event loop that sleeps in its own poll and waits for a ring, among others, as QEMU, GLib, Qt,
 * libuv and Netty do. It keeps DEPTH requests in flight and enters only to submit.
 *
 *     event-loop SHAPE WHAT DEPTH SECONDS [FILE]
 *
 * SHAPE: ppoll (on the ring), level, edge (an epoll set with the ring), eventfd (ppoll on an
 * eventfd that is registered with the ring), calls (no ring: the least that user space must do for
 * the same: an epoll_wait a round; for files an io_submit of all that it begins, where kernel aio
 * signals an eventfd in the set, and has its events in memory; for sockets a send, a recv, and what
 * is left in the socket), getevents, spin (files only, kernel aio alone: waits in io_getevents, or
 * polls its memory without a pause).
 * WHAT: read, write (4 KiB at random, O_DIRECT, in FILE), sockets (64 bytes through a pair, SEND
 * and RECV), both (half reads, half sockets).
 *
 * Prints requests, seconds, and seconds of processor time. Makes raw system calls, so that no
 * library is measured. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, ENTRIES = 256, MESSAGE = 64, MAX_DEPTH = 128 };

static struct {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    unsigned queued;
} ring;

static int file = -1, writes;
static uint64_t blocks, state = 88172645463325252u;
static char *buffers;
static int pairs[MAX_DEPTH][2];

static void die(const char *what) {
    fprintf(stderr, "event-loop: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *mapped(size_t size, off_t at) {
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, at);
    if (p == MAP_FAILED) die("mmap");
    return p;
}

static void set_up(void) {
    struct io_uring_params p = {0};
    ring.fd = syscall(SYS_io_uring_setup, ENTRIES, &p);
    if (ring.fd < 0) die("io_uring_setup");
    char *cq = mapped(p.cq_off.cqes + p.cq_entries * sizeof *ring.cqes, IORING_OFF_CQ_RING);
    char *sq = mapped(p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    ring.sqes = mapped(p.sq_entries * sizeof *ring.sqes, IORING_OFF_SQES);
    ring.sq_tail = (unsigned *)(sq + p.sq_off.tail);
    ring.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(sq + p.sq_off.array);
    ring.cq_head = (unsigned *)(cq + p.cq_off.head);
    ring.cq_tail = (unsigned *)(cq + p.cq_off.tail);
    ring.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    ring.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

static void queue(int op, int fd, char *at, unsigned len, uint64_t off, uint64_t data) {
    unsigned tail = *ring.sq_tail, i = tail & *ring.sq_mask;
    ring.sqes[i] = (struct io_uring_sqe){
        .opcode = op, .fd = fd, .addr = (uintptr_t)at, .len = len, .off = off, .user_data = data};
    ring.sq_array[i] = i;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
    ring.queued++;
}

static void submit(void) {
    while (ring.queued > 0) {
        int n = syscall(SYS_io_uring_enter, ring.fd, ring.queued, 0, 0, NULL, 0);
        if (n < 0 && errno != EINTR && errno != EAGAIN) die("io_uring_enter");
        if (n > 0) ring.queued -= n;
    }
}

/* Where the next request reads or writes: any block. */
static uint64_t offset(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % blocks * BLOCK;
}

/* Begins request `i`, or begins it again: the lower bit of its name says that it counts. */
static void start(unsigned i, int on_file) {
    char *at = buffers + (size_t)i * BLOCK;
    if (on_file) {
        int op = writes ? IORING_OP_WRITE : IORING_OP_READ;
        queue(op, file, at, BLOCK, offset(), i << 1 | 1);
    } else {
        queue(IORING_OP_RECV, pairs[i][0], at, MESSAGE, 0, i << 1 | 1);
        queue(IORING_OP_SEND, pairs[i][1], at + MESSAGE, MESSAGE, 0, i << 1);
    }
}

/* The memory that kernel aio shares: the events from `head` to `tail` are done. */
struct aio_ring {
    unsigned id, nr, head, tail, magic, features[2], header_length;
    struct io_event events[];
};

/* What the shape calls has instead of a ring. */
static struct {
    aio_context_t aio;
    enum { EPOLL, GETEVENTS, SPIN } wait;
    int set, event;
    struct iocb blocks[MAX_DEPTH], *begun[MAX_DEPTH];
    unsigned files;
} plain;

static void watch(int fd, uint64_t data) {
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = data};
    if (epoll_ctl(plain.set, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl");
}

/* Begins request `i` by a call, or queues it for that of all files. */
static void call(unsigned i, int on_file) {
    char *at = buffers + (size_t)i * BLOCK;
    if (!on_file) {
        if (send(pairs[i][1], at + MESSAGE, MESSAGE, MSG_DONTWAIT) != MESSAGE) die("send");
        return;
    }
    plain.blocks[i] = (struct iocb){.aio_lio_opcode = writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
        .aio_fildes = file, .aio_buf = (uintptr_t)at, .aio_nbytes = BLOCK, .aio_offset = offset(),
        .aio_flags = plain.wait == EPOLL ? IOCB_FLAG_RESFD : 0, .aio_resfd = plain.event,
        .aio_data = i};
    plain.begun[plain.files++] = &plain.blocks[i];
}

static void call_files(void) {
    for (unsigned n = 0; n < plain.files;) {
        long took = syscall(SYS_io_submit, plain.aio, plain.files - n, plain.begun + n);
        if (took < 0) die("io_submit");
        n += took;
    }
    plain.files = 0;
}

static void set_up_calls(unsigned depth, unsigned files) {
    if (syscall(SYS_io_setup, ENTRIES, &plain.aio)) die("io_setup");
    if (((struct aio_ring *)plain.aio)->magic != 0xa10a10a1) errno = ENOSYS, die("aio's memory");
    plain.event = eventfd(0, EFD_CLOEXEC);
    plain.set = epoll_create1(EPOLL_CLOEXEC);
    watch(plain.event, MAX_DEPTH);
    for (unsigned i = files; i < depth; i++) watch(pairs[i][0], i);
    for (unsigned i = 0; i < depth; i++) call(i, i < files);
    call_files();
}

/* Takes the events of files that are done: how many. */
static unsigned done_files(struct io_event *e) {
    if (plain.wait == GETEVENTS) {
        long n = syscall(SYS_io_getevents, plain.aio, 1, MAX_DEPTH, e, NULL);
        if (n < 1) die("io_getevents");
        return n;
    }
    struct aio_ring *aio = (struct aio_ring *)plain.aio;
    unsigned n = 0, head = aio->head, tail;
    do tail = __atomic_load_n(&aio->tail, __ATOMIC_ACQUIRE);
    while (plain.wait == SPIN && head == tail);
    for (; head != tail; head = (head + 1) % aio->nr) e[n++] = aio->events[head];
    __atomic_store_n(&aio->head, head, __ATOMIC_RELEASE);
    return n;
}

/* One round of the shapes without a ring: how many requests were done. Each is begun again. */
static unsigned calls(void) {
    struct epoll_event got[MAX_DEPTH + 1];
    int n = plain.wait == EPOLL ? epoll_wait(plain.set, got, MAX_DEPTH + 1, 5000) : 0, left;
    if (plain.wait == EPOLL && n < 1) errno = n ? errno : ETIMEDOUT, die("epoll_wait");
    struct io_event events[MAX_DEPTH];
    unsigned done = done_files(events);
    for (unsigned k = 0; k < done; k++) {
        long res = events[k].res;
        if (res != BLOCK) errno = res < 0 ? -res : EIO, die("a request");
        call(events[k].data, 1);
    }
    call_files();
    for (int k = 0; k < n; k++) {
        unsigned i = got[k].data.u64;
        if (i == MAX_DEPTH) continue;
        if (recv(pairs[i][0], buffers + (size_t)i * BLOCK, MESSAGE, MSG_DONTWAIT) != MESSAGE)
            die("recv");
        if (ioctl(pairs[i][0], FIONREAD, &left)) die("FIONREAD");
        call(i, 0);
        done++;
    }
    return done;
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc < 5) return fprintf(stderr, "usage: event-loop SHAPE WHAT DEPTH SECONDS [FILE]\n"), 2;
    const char *shape = argv[1], *what = argv[2];
    unsigned depth = atoi(argv[3]);
    double limit = atof(argv[4]);
    if (depth < 1 || depth > MAX_DEPTH) return fprintf(stderr, "DEPTH: 1 to 128\n"), 2;
    int both = !strcmp(what, "both"), sockets = both || !strcmp(what, "sockets");
    unsigned files = !sockets ? depth : both ? (depth + 1) / 2 : 0;
    writes = !strcmp(what, "write");
    if (files > 0) {
        struct stat st;
        file = argc > 5 ? open(argv[5], O_RDWR | O_DIRECT) : -1;
        if (file < 0 || fstat(file, &st)) die("FILE");
        blocks = st.st_size / BLOCK;
    }
    buffers = mmap(NULL, (size_t)MAX_DEPTH * BLOCK, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    for (unsigned i = files; i < depth; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i])) die("socketpair");
    if (!strcmp(shape, "getevents")) plain.wait = GETEVENTS;
    if (!strcmp(shape, "spin")) plain.wait = SPIN;
    int ringless = !strcmp(shape, "calls") || plain.wait != EPOLL;
    if (plain.wait != EPOLL && sockets) return fprintf(stderr, "%s: files only\n", shape), 2;
    if (!ringless) set_up();

    int event = -1, set = -1, edge = !strcmp(shape, "edge");
    if (!strcmp(shape, "eventfd")) {
        event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_EVENTFD, &event, 1))
            die("IORING_REGISTER_EVENTFD");
    } else if (edge || !strcmp(shape, "level")) {
        struct epoll_event e = {.events = EPOLLIN | (edge ? EPOLLET : 0)};
        set = epoll_create1(EPOLL_CLOEXEC);
        if (epoll_ctl(set, EPOLL_CTL_ADD, ring.fd, &e)) die("epoll_ctl");
    } else if (strcmp(shape, "ppoll") && !ringless) {
        return fprintf(stderr, "SHAPE: ppoll, level, edge, eventfd, calls, getevents, spin\n"), 2;
    }
    /* The loop also waits for this, which never comes. */
    int other = eventfd(0, EFD_CLOEXEC);
    if (set >= 0) {
        struct epoll_event e = {.events = EPOLLIN, .data.u64 = 1};
        if (epoll_ctl(set, EPOLL_CTL_ADD, other, &e)) die("epoll_ctl");
    }

    if (ringless) set_up_calls(depth, files);
    for (unsigned i = 0; i < depth && !ringless; i++) start(i, i < files);
    submit();
    uint64_t done = 0;
    double begin = seconds(CLOCK_MONOTONIC), now = begin;
    double busy = seconds(CLOCK_PROCESS_CPUTIME_ID);
    while (now - begin < limit) {
        if (ringless) {
            done += calls();
            now = seconds(CLOCK_MONOTONIC);
            continue;
        }
        if (set >= 0) {
            struct epoll_event got[8];
            int n = epoll_wait(set, got, 8, 5000);
            if (n < 0 && errno == EINTR) continue;
            if (n < 1) errno = n ? errno : ETIMEDOUT, die("epoll_wait");
        } else {
            struct pollfd fds[2] = {{.fd = event >= 0 ? event : ring.fd, .events = POLLIN},
                                    {.fd = other, .events = POLLIN}};
            struct timespec most = {.tv_sec = 5};
            int ready = ppoll(fds, 2, &most, NULL);
            if (ready < 0 && errno == EINTR) continue;
            if (ready < 1) errno = ready ? errno : ETIMEDOUT, die("ppoll");
            uint64_t n;
            if (event >= 0 && read(event, &n, sizeof n) < 0 && errno != EAGAIN) die("read");
        }
        unsigned head = *ring.cq_head;
        while (head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) {
            struct io_uring_cqe *cqe = &ring.cqes[head++ & *ring.cq_mask];
            unsigned i = cqe->user_data >> 1;
            if (cqe->res != (i < files ? BLOCK : MESSAGE)) {
                errno = cqe->res < 0 ? -cqe->res : EIO;
                die("a request");
            }
            if (cqe->user_data & 1) {
                done++;
                start(i, i < files);
            }
        }
        __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
        submit();
        now = seconds(CLOCK_MONOTONIC);
    }
    printf("%llu %f %f\n", (unsigned long long)done, now - begin,
           seconds(CLOCK_PROCESS_CPUTIME_ID) - busy);
    return 0;
}
