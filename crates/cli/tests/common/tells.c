/* Tells what a program finds when it starts, but for softring's variables. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    char exe[4096] = {0}, comm[64] = {0};
    readlink("/proc/self/exe", exe, sizeof exe - 1);
    FILE *f = fopen("/proc/self/comm", "r");
    if (f && fgets(comm, sizeof comm, f))
        fclose(f);
    printf("%s %s", exe, comm);
    for (int i = 0; i < argc; i++)
        printf("argument %s\n", argv[i]);
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf("descriptor %d\n", fd);
    for (int signo = 1; signo < 65; signo++) {
        struct sigaction action;
        if (sigaction(signo, 0, &action) == 0 && action.sa_handler != SIG_DFL)
            printf("signal %d\n", signo);
    }
    sigset_t mask;
    sigprocmask(SIG_BLOCK, 0, &mask);
    for (int signo = 1; signo < 65; signo++)
        if (sigismember(&mask, signo))
            printf("blocked %d\n", signo);
    for (char **at = environ; *at; at++)
        if (strncmp(*at, "SOFTRING_", 9) && strncmp(*at, "LD_PRELOAD=", 11))
            printf("variable %s\n", *at);
    return 0;
}
