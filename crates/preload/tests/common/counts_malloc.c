/* Counts the calls of malloc(3), calloc(3) and realloc(3) that other threads than the first make,
   outside of pthread_create(3). Prints their number, and how many threads have been started. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SQES = 64 };

static _Alignas(64) char memory[64 << 20];
static size_t used;
static int others, threads, first;
static __thread int creates;

static void *take(size_t size, size_t align)
{
    if (first && !creates && syscall(SYS_gettid) != first)
        __atomic_add_fetch(&others, 1, __ATOMIC_RELAXED);
    /* Each block begins after its size. */
    size_t at = __atomic_fetch_add(&used, size + align + 32, __ATOMIC_RELAXED);
    size_t block = ((size_t)memory + at + 16 + align - 1) & -align;
    ((size_t *)block)[-1] = size;
    return (void *)block;
}

void *malloc(size_t size) { return take(size, 16); }
void *calloc(size_t count, size_t size) { return take(count * size, 16); }
void *memalign(size_t align, size_t size) { return take(size, align < 16 ? 16 : align); }
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **at, size_t align, size_t size) { return !(*at = memalign(align, size)); }
void free(void *block) { (void)block; }

void *realloc(void *old, size_t size)
{
    char *block = take(size, 16);
    size_t had = old ? ((size_t *)old)[-1] : 0;
    for (size_t i = 0; i < had && i < size; i++)
        block[i] = ((char *)old)[i];
    return block;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    typeof(pthread_create) *next = (typeof(next))dlsym(RTLD_NEXT, "pthread_create");
    creates++;
    int error = next(thread, attr, run, arg);
    creates--;
    __atomic_add_fetch(&threads, !error, __ATOMIC_RELAXED);
    return error;
}

static struct io_uring_params p;
static struct io_uring_sqe *sqes;
static char *shared;
static int ring;

static unsigned *word(unsigned offset) { return (unsigned *)(shared + offset); }

static int make(unsigned flags)
{
    p = (struct io_uring_params){ .flags = flags, .sq_thread_idle = 50 };
    ring = syscall(SYS_io_uring_setup, SQES, &p);
    if (ring < 0)
        return 0;
    shared = mmap(0, p.cq_off.cqes + 2 * SQES * 16, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    sqes = mmap(0, SQES * 64, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    return 1;
}

static void put(int op, int fd, const void *at, unsigned len, int flags)
{
    unsigned *tail = word(p.sq_off.tail), slot = *tail % SQES;
    memset(&sqes[slot], 0, 64);
    sqes[slot].opcode = op;
    sqes[slot].fd = fd;
    sqes[slot].addr = (unsigned long)at;
    sqes[slot].len = len;
    sqes[slot].flags = flags;
    if (op == IORING_OP_POLL_ADD)
        sqes[slot].poll32_events = 1;
    word(p.sq_off.array)[slot] = slot;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
}

static void reap(unsigned count)
{
    unsigned *head = word(p.cq_off.head), *tail = word(p.cq_off.tail);
    unsigned to_submit = p.flags & IORING_SETUP_SQPOLL ? 0 : count;
    unsigned flags = IORING_ENTER_GETEVENTS | (to_submit ? 0 : IORING_ENTER_SQ_WAKEUP);
    while (__atomic_load_n(tail, __ATOMIC_ACQUIRE) - *head < count) {
        syscall(SYS_io_uring_enter, ring, to_submit, count, flags, 0, 8);
        to_submit = 0;
    }
    __atomic_store_n(head, *head + count, __ATOMIC_RELEASE);
}

int main(void)
{
    static char page[4096], byte[2];
    struct __kernel_timespec soon = { 0, 100000 };
    int pipe_ends[2], file = syscall(SYS_memfd_create, "counts", 0);
    first = getpid();
    if (pipe(pipe_ends))
        return 1;
    for (int kind = 0; kind < 2; kind++) {
        if (!make(kind ? IORING_SETUP_SQPOLL : 0))
            return 77;
        for (int i = 0; i < 500; i++) {
            put(IORING_OP_READ, pipe_ends[0], byte, 1, 0);
            put(IORING_OP_POLL_ADD, pipe_ends[0], 0, 0, 0);
            put(IORING_OP_FSYNC, file, 0, 0, 0);
            put(IORING_OP_WRITE, file, page, sizeof page, IOSQE_ASYNC);
            put(IORING_OP_TIMEOUT, -1, &soon, 1, 0);
            put(IORING_OP_WRITE, pipe_ends[1], "xy", 2, 0);
            put(IORING_OP_READ, pipe_ends[0], byte + 1, 1, IOSQE_ASYNC);
            reap(7);
        }
        close(ring);
    }
    printf("%d %d\n", others, threads);
    return 0;
}
