/* One thread hands data to another through a ring: `nop`, `msg`, `eventfd`, or `worker`, whose
   data a read has put into memory of the heap. Exits with 77 where there is no ring. */
#define _GNU_SOURCE
#include <stdio.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TIMES = 300, SQES = 64, CQES = 1024 };

static struct io_uring_params p = { .flags = IORING_SETUP_CQSIZE, .cq_entries = CQES };
static struct io_uring_sqe *sqes;
static char *shared, kind;
static int ring, file, done;
static char *data[TIMES];

static unsigned *word(unsigned offset)
{
    return (unsigned *)(shared + offset);
}

static void submit(unsigned long i)
{
    unsigned *tail = word(p.sq_off.tail), slot = *tail % SQES;
    struct io_uring_sqe *sqe = &sqes[slot];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = kind == 'w' ? IORING_OP_READ : kind == 'm' ? IORING_OP_MSG_RING : IORING_OP_NOP;
    sqe->fd = kind == 'w' ? file : ring;
    sqe->flags = kind == 'w' ? IOSQE_ASYNC : 0;
    sqe->addr = kind == 'w' ? (unsigned long)data[i] : 0;
    sqe->len = kind == 'w' ? 8 : 0;
    sqe->off = kind == 'm' ? i : 0;
    /* The message itself tells nothing when it is sent. */
    sqe->user_data = kind == 'm' ? TIMES : i;
    word(p.sq_off.array)[slot] = slot;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 0, 0, 0, 8) != 1)
        _exit(3);
}

static void *writer(void *none)
{
    for (int i = 0; i < TIMES; i++) {
        data[i] = malloc(8);
        if (kind != 'w')
            data[i][0] = 'x';
        submit(i);
    }
    /* The end of a thread cancels what it has in flight. */
    while (!__atomic_load_n(&done, __ATOMIC_RELAXED))
        usleep(1000);
    return none;
}

int main(int argc, char **argv)
{
    int events = eventfd(0, 0);
    kind = argc > 1 ? argv[1][0] : 'n';
    ring = syscall(SYS_io_uring_setup, SQES, &p);
    if (ring < 0)
        return 77;
    shared = mmap(0, p.cq_off.cqes + CQES * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
                  MAP_SHARED, ring, IORING_OFF_SQ_RING);
    sqes = mmap(0, SQES * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    file = syscall(SYS_memfd_create, "hand_over", 0);
    if (pwrite(file, "xxxxxxxx", 8, 0) != 8)
        return 4;
    if (kind == 'e' && syscall(SYS_io_uring_register, ring, IORING_REGISTER_EVENTFD, &events, 1))
        return 5;
    pthread_t thread;
    pthread_create(&thread, 0, writer, 0);
    struct io_uring_cqe *cqes = (void *)(shared + p.cq_off.cqes);
    unsigned *head = word(p.cq_off.head), *tail = word(p.cq_off.tail);
    for (int got = 0; got < TIMES;) {
        unsigned long n;
        if (*head == __atomic_load_n(tail, __ATOMIC_ACQUIRE)) {
            if (kind == 'e' && read(events, &n, 8) != 8)
                return 6;
            if (kind != 'e')
                syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, 0, 8);
            continue;
        }
        struct io_uring_cqe *cqe = &cqes[*head % CQES];
        if (cqe->user_data < TIMES) {
            if (data[cqe->user_data][0] != 'x')
                return 7;
            got++;
        }
        __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELAXED);
    pthread_join(thread, 0);
    /* A runtime that gave up at once has not come here. */
    return puts("handed over") < 0;
}
