/* A read of a pipe that is empty at first, through a ring. In between, while threads may wait for the
 * pipe, the ids of all threads are set: the C library sends each of them a signal of its own. Prints
 * what was read; 77: there is no ring. Ends by SIGALRM if anything hangs. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ring.h"

static NOINLINE long inline_submit(int fd, long submit, long wanted)
{
    register long flags __asm__("r10") = 1, mask __asm__("r8") = 0, size __asm__("r9") = 8;
    long ret;
    __asm__ volatile("movl $426, %%eax\n\tsyscall"
                     : "=&a"(ret)
                     : "D"((long)fd), "S"(submit), "d"(wanted), "r"(flags), "r"(mask), "r"(size)
                     : "rcx", "r11", "memory");
    return ret;
}

int main(void)
{
    alarm(20);
    long fd = inline_setup();
    if (fd < 0) {
        printf("no ring: %s\n", strerror((int)-fd));
        return 77;
    }
    char *ring = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
    char *sqe = mmap(NULL, 4 * 64, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0x10000000);
    int ends[2];
    static char text[16];
    if (ring == MAP_FAILED || sqe == MAP_FAILED || pipe(ends) < 0)
        return 1;
    /* IORING_OP_READ at the file's own position */
    sqe[0] = 22;
    *(int32_t *)(sqe + 4) = ends[0];
    *(int64_t *)(sqe + 8) = -1;
    *(void **)(sqe + 16) = text;
    *(uint32_t *)(sqe + 24) = sizeof text - 1;
    *(uint32_t *)(ring + params[16]) = 0;
    __atomic_store_n((uint32_t *)(ring + params[11]), 1, __ATOMIC_RELEASE);
    if (inline_submit((int)fd, 1, 0) != 1)
        return 2;
    if (setgid(getgid()) < 0 || setuid(getuid()) < 0)
        return 3;
    if (write(ends[1], "late", 4) != 4 || inline_submit((int)fd, 0, 1) != 0)
        return 4;
    int32_t res = *(int32_t *)(ring + params[25] + 8);
    printf("%d %s\n", res, text);
    return res != 4;
}
