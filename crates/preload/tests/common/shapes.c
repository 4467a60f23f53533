/* System call functions that take the number as an argument, in the shapes that compilers and
 * libraries write. argv[1]: the shape. argv[2] "cost": prints nanoseconds per call of another
 * number. Exits with 77 where the kernel makes no ring. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FUNCTION(name, ...)                                                                     \
    __asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n" #name            \
            ":\n.cfi_startproc\n" __VA_ARGS__ ".cfi_endproc\n.size " #name ", . - " #name "\n"); \
    long name(long nr, long a, long b, long c, long d, long e, long f)

#define ARGUMENTS                                                                                \
    "movq %rdi, %rax\nmovq %rsi, %rdi\nmovq %rdx, %rsi\nmovq %rcx, %rdx\nmovq %r8, %r10\n"       \
    "movq %r9, %r8\n"

/* glibc's syscall(): a compare and a jump follow. */
FUNCTION(glibc, ARGUMENTS "movq 8(%rsp), %r9\nsyscall\ncmpq $-4095, %rax\njae 1f\nret\n1: ret\n");
/* musl's: a tail call follows. */
FUNCTION(musl, ARGUMENTS "movq 8(%rsp), %r9\nsyscall\nmovq %rax, %rdi\njmp ends\n");
/* The number last, from memory, and the stack is cleaned up behind the call: Zig's. */
FUNCTION(zig, ARGUMENTS "movq 8(%rsp), %r9\nsubq $24, %rsp\n.cfi_adjust_cfa_offset 24\n"
         "movq %rax, 8(%rsp)\nmovq 8(%rsp), %rax\nsyscall\naddq $24, %rsp\n"
         ".cfi_adjust_cfa_offset -24\nret\n");
/* Go's: arguments in registers of its own. */
FUNCTION(go6, "movq %rsi, %r10\nmovq %rdi, %rdx\nmovq %rcx, %rsi\nmovq %rbx, %rdi\nsyscall\n"
         "cmpq $-4095, %rax\njbe 1f\nmovq $0, %rbx\nret\n1: movq %rdx, %rbx\nret\n");
FUNCTION(go, "pushq %rbx\n.cfi_adjust_cfa_offset 8\nmovq %rdi, %rax\nmovq %rsi, %rbx\n"
         "movq %rcx, %rdi\nmovq %rdx, %rcx\nmovq %r8, %rsi\nmovq %r9, %r8\nmovq 16(%rsp), %r9\n"
         "call go6\npopq %rbx\n.cfi_adjust_cfa_offset -8\nret\n");
FUNCTION(ends, "movq %rdi, %rax\nret\n");
#ifndef FULL
/* A jump leads to the instruction, and a return follows: only the instruction can be replaced. */
FUNCTION(joined, ARGUMENTS "movq 8(%rsp), %r9\ntestq %rax, %rax\njs 1f\nmovl %eax, %eax\n"
         "1: syscall\nret\n");
/* A jump through a table may lead anywhere. */
FUNCTION(table, ARGUMENTS "movq 8(%rsp), %r9\nleaq 1f(%rip), %rcx\njmp *%rcx\n1: syscall\nret\n");
#else
/* The same, and no padding is near. */
FUNCTION(joined, ARGUMENTS "movq 8(%rsp), %r9\ntestq %rax, %rax\njs 1f\nmovl %eax, %eax\n"
         ".skip 160, 0xf8\n1: syscall\nret\nrep ret\n.p2align 4, 0xf8\n.skip 160, 0xf8\n");
#define table joined
#endif

static const struct {
    const char *name;
    long (*call)(long, long, long, long, long, long, long);
} shapes[] = {
    { "glibc", glibc }, { "musl", musl }, { "zig", zig }, { "go", go }, { "joined", joined }, { "table", table },
};

static double cost(long (*call)(long, long, long, long, long, long, long))
{
    enum { TIMES = 300000 };
    double best = 1e9;
    for (int round = 0; round < 9; round++) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < TIMES; i++)
            call(110, 0, 0, 0, 0, 0, 0);
        clock_gettime(CLOCK_MONOTONIC, &to);
        double ns = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / TIMES;
        best = ns < best ? ns : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    unsigned params[30] = { 0 }, probe[16 / 4 + 256 * 2] = { 0 };
    long ring, ret, (*call)(long, long, long, long, long, long, long) = NULL;

    for (unsigned i = 0; argc > 1 && i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(argv[1], shapes[i].name) == 0)
            call = shapes[i].call;
    if (!call)
        return 2;
    if (argc > 2) {
        printf("%.1f\n", cost(call));
        return 0;
    }
    if ((ring = call(425, 4, (long)params, 0, 0, 0, 0)) < 0)
        return 77;
    for (int i = 0; i < 3; i++)
        if ((ret = call(426, ring, 0, 0, 1, 0, 0)) != 0)
            return fprintf(stderr, "enter: %ld\n", ret), 1;
    /* IORING_REGISTER_PROBE */
    if ((ret = call(427, ring, 8, (long)probe, 256, 0, 0)) != 0)
        return fprintf(stderr, "register: %ld\n", ret), 3;
    /* dup, then close of both */
    if ((ret = call(32, ring, 0, 0, 0, 0, 0)) < 0 || call(3, ret, 0, 0, 0, 0, 0) != 0)
        return fprintf(stderr, "dup: %ld\n", ret), 4;
    if ((ret = call(3, ring, 0, 0, 0, 0, 0)) != 0)
        return fprintf(stderr, "close: %ld\n", ret), 5;
    return (ret = call(426, ring, 0, 0, 1, 0, 0)) == -9 ? 0 : 6;
}
