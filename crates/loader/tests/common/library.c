// A library that says who it is, and lets the program begin.
#include <stdint.h>

struct start {
    uint64_t entry, stack, base, len, own_stack, own_stack_len, name, helper;
};

extern void nobody(void) __attribute__((weak));
extern int shared;
int shared = 40;
static const char *const words[] = {"library", " is", " here\n"};
static int *pointer = &shared;
static volatile char zeroes[10000];
__attribute__((visibility("hidden"))) uint64_t first_instruction;

static long call(long nr, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

static void say(const char *text)
{
    long len = 0;
    while (text[len])
        len++;
    call(1, 2, (long)text, len, 0, 0, 0);
}

__attribute__((used, visibility("hidden"))) void begin(struct start *start)
{
    int sum = 0;
    for (unsigned i = 0; i < sizeof zeroes; i++)
        sum += zeroes[i];
    *pointer += 2;
    if (sum || shared != 42 || &nobody)
        say("relocations are wrong\n");
    if ((uint64_t)words < start->base || (uint64_t)words >= start->base + start->len)
        say("the range is wrong\n");
    for (unsigned i = 0; i < 3; i++)
        say(words[i]);
    first_instruction = start->entry;
    // __WALL
    if (call(61, start->helper, 0, 0x40000000, 0, 0, 0) != (long)start->helper)
        say("there is no helper\n");
}

__asm__(".globl softring_start_static\n"
        ".type softring_start_static, @function\n"
        "softring_start_static:\n"
        "mov %rdi, %rbx\n"
        "call begin\n"
        "mov 32(%rbx), %rdi\n"
        "mov 40(%rbx), %rsi\n"
        "mov 8(%rbx), %rsp\n"
        "mov $11, %eax\n"
        "syscall\n"
        "xor %eax, %eax\n"
        "xor %ebx, %ebx\n"
        "xor %ecx, %ecx\n"
        "xor %edx, %edx\n"
        "xor %esi, %esi\n"
        "xor %edi, %edi\n"
        "xor %r8d, %r8d\n"
        "xor %r9d, %r9d\n"
        "xor %r10d, %r10d\n"
        "xor %r11d, %r11d\n"
        "jmp *first_instruction(%rip)\n");
