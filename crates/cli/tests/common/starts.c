/* Starts ./ring with an empty environment, in one of 15 ways; exits with 0 if that does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
/* A call whose number is not known, as Go's. */
static long __attribute__((noinline)) call(long nr, const char *a, char **b, char **c)
{
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return ret;
}
int main(int argc, char **argv)
{
    char *args[] = { "ring", 0 }, *none[] = { 0 };
    pid_t pid = 0;
    (void)argc;
    switch (atoi(argv[1])) {
    case 0: execve("./ring", args, none); break;
    case 1: environ = none; execv("./ring", args); break;
    case 2: execvpe("./ring", args, none); break;
    case 3: fexecve(open("ring", O_RDONLY), args, none); break;
    case 4: execveat(AT_FDCWD, "./ring", args, none, 0); break;
    case 5: execle("./ring", "ring", (char *)0, none); break;
    case 6: posix_spawn(&pid, "./ring", 0, 0, args, none); break;
    case 7: posix_spawnp(&pid, "./ring", 0, 0, args, none); break;
    case 8: if (!(pid = vfork())) { execve("./ring", args, none); _exit(1); } break;
    case 9: syscall(SYS_execve, "./ring", args, none); break;
    case 10: environ = none; return system("./ring") != 0;
    case 11: environ = 0; return pclose(popen("./ring", "r")) != 0;
    case 12: call(59, "./ring", args, none); break;
    case 13: if (!(pid = vfork())) { call(59, "./ring", args, 0); _exit(1); } break;
    case 14: execveat(open("ring", O_RDONLY), "", args, none, AT_EMPTY_PATH); break;
    }
    int status = 1;
    return waitpid(pid, &status, 0) != pid || status;
}
