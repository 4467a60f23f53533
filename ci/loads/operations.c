/* Runs one operation at a time through a ring, COUNT times; ci/instructions.sh counts instructions,
 * ci/loads/ring.py takes the time.
 *
 *     operations WHAT COUNT FILE
 *
 * WHAT: nop, nops (32 by one call), read (4 KiB of FILE, cached), reads (32 by one call), direct (one
 * with O_DIRECT), directs (32 by one call), echo (a RECV that waits, then the SEND that ends its wait),
 * poll (a POLL_ADD, as well), ring (closed, and another made), first (the same, and one read with
 * O_DIRECT), other (getppid(2) by a function that takes the number as an argument). least-ring and
 * least-first do the least that user space must do for two of these, without a ring: a file in memory,
 * mapped as a ring is, and a read through kernel aio.
 * Makes raw system calls, so that no library is counted. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 64, BLOCK = 4096, MESSAGE = 64, BATCH = 32 };

static int ring;
static char *rings;
static size_t rings_len;
static unsigned *sq_tail, sq_mask, *sq_array, *cq_head, *cq_tail, cq_mask;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;
static char block[BLOCK] __attribute__((aligned(BLOCK))), message[MESSAGE];

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void make_ring(void) {
    struct io_uring_params p = {0};
    int access = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_POPULATE;
    ring = (int)syscall(SYS_io_uring_setup, ENTRIES, &p);
    check(ring >= 0, "io_uring_setup");
    size_t cq_len = p.cq_off.cqes + p.cq_entries * sizeof *cqes;
    size_t sq_len = p.sq_off.array + p.sq_entries * sizeof *sq_array;
    rings_len = cq_len > sq_len ? cq_len : sq_len;
    rings = mmap(NULL, rings_len, access, how, ring, IORING_OFF_SQ_RING);
    check(rings != MAP_FAILED, "mmap");
    sqes = mmap(NULL, ENTRIES * sizeof *sqes, access, how, ring, IORING_OFF_SQES);
    check(sqes != MAP_FAILED, "mmap");
    sq_tail = (unsigned *)(rings + p.sq_off.tail);
    sq_mask = *(unsigned *)(rings + p.sq_off.ring_mask);
    sq_array = (unsigned *)(rings + p.sq_off.array);
    cq_head = (unsigned *)(rings + p.cq_off.head);
    cq_tail = (unsigned *)(rings + p.cq_off.tail);
    cq_mask = *(unsigned *)(rings + p.cq_off.ring_mask);
    cqes = (struct io_uring_cqe *)(rings + p.cq_off.cqes);
}

static void close_ring(void) {
    munmap(rings, rings_len);
    munmap(sqes, ENTRIES * sizeof *sqes);
    check(close(ring) == 0, "close");
}

/* Makes a file in memory, maps it, reads a block through FD unless that is -1, and drops all. */
static void least(int fd) {
    static aio_context_t context;
    size_t page = BLOCK, whole = 2 * page;
    int access = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_POPULATE;
    int file = memfd_create("ring", MFD_CLOEXEC);
    check(file >= 0 && ftruncate(file, (off_t)whole) == 0, "memfd_create");
    void *one = mmap(NULL, page, access, how, file, 0);
    void *two = mmap(NULL, page, access, how, file, BLOCK);
    check(one != MAP_FAILED && two != MAP_FAILED, "mmap");
    if (fd >= 0) {
        struct iocb iocb = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (unsigned)fd}, *all = &iocb;
        struct io_event event;
        iocb.aio_buf = (unsigned long)block;
        iocb.aio_nbytes = BLOCK;
        if (context == 0) check(syscall(SYS_io_setup, 1, &context) == 0, "io_setup");
        check(syscall(SYS_io_submit, context, 1, &all) == 1, "io_submit");
        check(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1, "io_getevents");
        check(event.res == BLOCK, "a read");
    }
    munmap(one, page);
    munmap(two, page);
    close(file);
}

static struct io_uring_sqe *push(int opcode, int fd, void *addr, unsigned len) {
    unsigned tail = *sq_tail, at = tail & sq_mask;
    struct io_uring_sqe *sqe = &sqes[at];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = (unsigned char)opcode;
    sqe->fd = fd;
    sqe->addr = (unsigned long)addr;
    sqe->len = len;
    sq_array[at] = at;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
    return sqe;
}

static long enter(unsigned submit, unsigned wait) {
    return syscall(SYS_io_uring_enter, ring, submit, wait, IORING_ENTER_GETEVENTS, NULL, 0);
}

/* Makes a call by the program's own instruction, as Go's and Zig's functions do. */
static __attribute__((noinline)) long call(long nr) {
    long ret;
    __asm__ volatile("syscall" : "=a"(ret) : "a"(nr) : "rcx", "r11", "memory");
    return ret;
}

/* Submits SUBMIT requests and takes TAKE completions. */
static void run(unsigned submit, unsigned take) {
    check(enter(submit, take) == (long)submit, "io_uring_enter");
    for (; take > 0; take--) {
        unsigned head = *cq_head;
        while (head == __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE)) enter(0, 1);
        check(cqes[head & cq_mask].res >= 0, "a completion");
        __atomic_store_n(cq_head, head + 1, __ATOMIC_RELEASE);
    }
}

int main(int argc, char **argv) {
    int ends[2];
    if (argc != 4) return 2;
    const char *what = argv[1];
    int cached = open(argv[3], O_RDONLY), direct = open(argv[3], O_RDONLY | O_DIRECT);
    check(cached >= 0, argv[3]);
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    if (strncmp(what, "least", 5) != 0) make_ring();
    for (int left = atoi(argv[2]); left > 0; left--) {
        if (!strcmp(what, "other")) {
            check(call(SYS_getppid) >= 0, "getppid");
        } else if (!strcmp(what, "ring")) {
            close_ring();
            make_ring();
        } else if (!strcmp(what, "least-ring") || !strcmp(what, "least-first")) {
            least(!strcmp(what, "least-ring") ? -1 : direct);
        } else if (!strcmp(what, "first")) {
            close_ring();
            make_ring();
            push(IORING_OP_READ, direct, block, BLOCK);
            run(1, 1);
        } else if (!strcmp(what, "nop")) {
            push(IORING_OP_NOP, -1, NULL, 0);
            run(1, 1);
        } else if (!strcmp(what, "nops")) {
            for (int i = 0; i < BATCH; i++) push(IORING_OP_NOP, -1, NULL, 0);
            run(BATCH, BATCH);
        } else if (!strcmp(what, "reads") || !strcmp(what, "directs")) {
            int fd = *what == 'r' ? cached : direct;
            for (int i = 0; i < BATCH; i++) push(IORING_OP_READ, fd, block, BLOCK);
            run(BATCH, BATCH);
        } else if (!strcmp(what, "read") || !strcmp(what, "direct")) {
            push(IORING_OP_READ, *what == 'r' ? cached : direct, block, BLOCK);
            run(1, 1);
        } else if (!strcmp(what, "echo")) {
            push(IORING_OP_RECV, ends[0], message, MESSAGE);
            run(1, 0);
            push(IORING_OP_SEND, ends[1], block, MESSAGE);
            run(1, 2);
        } else if (!strcmp(what, "poll")) {
            push(IORING_OP_POLL_ADD, ends[0], NULL, 0)->poll32_events = POLLIN;
            run(1, 0);
            push(IORING_OP_SEND, ends[1], block, MESSAGE);
            run(1, 2);
            check(read(ends[0], message, MESSAGE) == MESSAGE, "read");
        } else {
            return 2;
        }
    }
    return 0;
}
