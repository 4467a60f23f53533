/* Starts a program in a way that the first argument names, with the rest as its arguments, and
 * ends with its exit code, or with 9 and the error if it cannot be started. "none" before the way:
 * the environment is A=1 alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *none[] = {"A=1", 0};

static int failed(void)
{
    printf("error %d\n", errno);
    fflush(stdout);
    _exit(9);
}

static long pages(void)
{
    long n = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld", &n) == 1)
        fclose(f);
    return n;
}

/* Copies a program to a file in memory that exec closes. */
static int copy(char *path)
{
    char buf[4096];
    int from = open(path, O_RDONLY), to = memfd_create("copy", MFD_CLOEXEC);
    for (ssize_t n; (n = read(from, buf, sizeof buf)) > 0;)
        write(to, buf, n);
    close(from);
    return to;
}

static int by_vfork(char **a, char **env)
{
    int status = 0;
    if (!vfork()) {
        execve(a[0], a, env);
        failed();
    }
    wait(&status);
    return status;
}

int main(int argc, char **argv)
{
    char **env = environ, **a = argv + 2, *how = argv[1];
    int status = 0;
    if (!strcmp(how, "again"))
        return 6;
    if (!strcmp(how, "none")) {
        env = none;
        how = argv[2];
        a++;
    }
    if (!strcmp(how, "fork")) {
        if (!fork()) {
            execve(a[0], a, env);
            failed();
        }
        wait(&status);
    } else if (!strcmp(how, "vfork")) {
        status = by_vfork(a, env);
    } else if (!strcmp(how, "often")) {
        long before = 0;
        for (int i = 0; i < 40; i++) {
            status = by_vfork(a, env);
            if (i == 3)
                before = pages();
        }
        if (pages() - before > 16)
            return 8;
    } else if (!strcmp(how, "spawn")) {
        pid_t child;
        errno = posix_spawn(&child, a[0], 0, 0, a, env);
        if (errno)
            failed();
        wait(&status);
    } else if (!strcmp(how, "system")) {
        status = system(a[0]);
    } else if (!strcmp(how, "memory")) {
        fexecve(copy(a[0]), a, env);
        failed();
    } else if (!strcmp(how, "number")) {
        char path[32];
        sprintf(path, "/proc/self/fd/%d", open(a[0], O_RDONLY | O_CLOEXEC));
        execve(path, a, env);
        failed();
    } else if (!strcmp(how, "itself")) {
        execl("/proc/self/exe", "itself", "again", (char *)0);
        failed();
    } else if (!strcmp(how, "wrong")) {
        execve(a[0], (char **)1, env);
        failed();
    } else if (!strcmp(how, "at")) {
        char *slash = strrchr(a[0], '/');
        *slash = 0;
        int dir = open(a[0], O_PATH | O_DIRECTORY | O_CLOEXEC);
        syscall(SYS_execveat, dir, slash + 1, a, env, 0);
        failed();
    } else {
        execve(a[0], a, env);
        failed();
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 7;
}
