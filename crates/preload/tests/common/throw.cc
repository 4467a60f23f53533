// A handler that comes during a wait in enter throws, and the caller of enter catches. argv[1]: how
// enter is called.
#include <csignal>
#include <cstring>
#include <unistd.h>

static unsigned params[30];
static bool by_name;
static int destroyed;

struct Counted {
    ~Counted() { destroyed++; }
};

static void raise_it(int) { throw 42; }

__attribute__((noinline)) static long inline_setup()
{
    long ret;
    __asm__ volatile("movl $425, %%eax\n\tsyscall"
                     : "=&a"(ret)
                     : "D"(4L), "S"(params)
                     : "rcx", "r11", "memory");
    return ret;
}

__attribute__((noinline)) static long inline_enter(int fd, long wanted)
{
    register long flags __asm__("r10") = 1, mask __asm__("r8") = 0, size __asm__("r9") = 8;
    long ret;
    __asm__ volatile("movl $426, %%eax\n\tsyscall"
                     : "=&a"(ret)
                     : "D"((long)fd), "S"(0L), "d"(wanted), "r"(flags), "r"(mask), "r"(size)
                     : "rcx", "r11", "memory");
    return ret;
}

static long enter(int fd, long wanted)
{
    return by_name ? syscall(426, fd, 0, wanted, 1, 0, 8) : inline_enter(fd, wanted);
}

static long (*volatile wait_in)(int, long) = enter;

int main(int argc, char **argv)
{
    by_name = argc > 1 && std::strcmp(argv[1], "name") == 0;
    long ring = by_name ? syscall(425, 4, params) : inline_setup();
    if (ring < 0)
        return 77;
    signal(SIGALRM, raise_it);
    for (int round = 1; round <= 3; round++) {
        sigset_t alarm;
        sigemptyset(&alarm);
        sigaddset(&alarm, SIGALRM);
        sigprocmask(SIG_UNBLOCK, &alarm, nullptr);
        ualarm(20000, 0);
        try {
            Counted counted;
            wait_in(static_cast<int>(ring), 1);
            return 1;
        } catch (int thrown) {
            if (thrown != 42 || destroyed != round)
                return 2;
        }
    }
    return wait_in(static_cast<int>(ring), 0) == 0 ? 0 : 3;
}
