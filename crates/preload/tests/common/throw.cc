// A handler that comes during a wait in enter throws, and the caller of enter catches. argv[1]: how
// enter is called.
#include <csignal>
#include <cstring>

#include "ring.h"

static bool by_name;
static int destroyed;

struct Counted {
    ~Counted() { destroyed++; }
};

static void raise_it(int) { throw 42; }

static long (*volatile wait_in)(int, int, long) = enter;

int main(int argc, char **argv)
{
    by_name = argc > 1 && std::strcmp(argv[1], "name") == 0;
    int ring = static_cast<int>(setup(by_name));
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
            wait_in(by_name, ring, 1);
            return 1;
        } catch (int thrown) {
            if (thrown != 42 || destroyed != round)
                return 2;
        }
    }
    return wait_in(by_name, ring, 0) == 0 ? 0 : 3;
}
