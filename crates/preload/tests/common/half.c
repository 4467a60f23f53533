/* A ring whose setup has its number in plain view, and enter one that is computed: without unwind
 * tables nobody can tell where that function begins. */
#define NOINLINE __attribute__((noinline, noclone))

volatile int other;

static NOINLINE long setup(long entries, void *params)
{
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret) : "a"(425L), "D"(entries), "S"(params) : "rcx", "r11", "memory");
    return ret;
}

NOINLINE long enter(long fd, long submit, long wait, long flags, long mask, long size)
{
    long ret;
    register long r10 __asm__("r10") = flags, r8 __asm__("r8") = mask, r9 __asm__("r9") = size;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(other ? 39L : 426L), "D"(fd), "S"(submit), "d"(wait), "r"(r10),
                       "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

int main(void)
{
    static unsigned params[30];
    long ring = setup(4, params);
    if (ring < 0)
        return 77;
    return enter(ring, 0, 0, 1, 0, 0) == 0 ? 0 : 1;
}
