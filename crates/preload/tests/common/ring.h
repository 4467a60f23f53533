/* Ring calls by inline system calls, whose sites the library patches, or by libc's syscall(). */
#pragma once
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static unsigned params[30];

static NOINLINE long inline_setup(void)
{
    long ret;
    __asm__ volatile("movl $425, %%eax\n\tsyscall"
                     : "=&a"(ret)
                     : "D"(4L), "S"(params)
                     : "rcx", "r11", "memory");
    return ret;
}

/* io_uring_enter(2) that waits for `wanted` completions. */
static NOINLINE long inline_enter(int fd, long wanted)
{
    register long flags __asm__("r10") = 1, mask __asm__("r8") = 0, size __asm__("r9") = 8;
    long ret;
    __asm__ volatile("movl $426, %%eax\n\tsyscall"
                     : "=&a"(ret)
                     : "D"((long)fd), "S"(0L), "d"(wanted), "r"(flags), "r"(mask), "r"(size)
                     : "rcx", "r11", "memory");
    return ret;
}

static long setup(int by_name)
{
    return by_name ? syscall(425, 4, params) : inline_setup();
}

static long enter(int by_name, int fd, long wanted)
{
    return by_name ? syscall(426, fd, 0, wanted, 1, 0, 8) : inline_enter(fd, wanted);
}
