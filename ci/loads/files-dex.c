/* Files through GLib's libdex: files-dex TASKS FILES DIR
 * Each task, a fiber, opens, writes and closes one file after the other, then opens, reads and closes
 * it. Prints requests a second. */
#include <fcntl.h>
#include <libdex.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 4096, REQUESTS = 6 };

static int each, running;
static const char *dir;
static GMainLoop *loop;

static int done(gint64 result, GError *error, const char *what) {
    if (error || result < 0) g_error("%s: %s", what, error ? error->message : "failed");
    return (int)result;
}

static int opened(const char *path, int flags) {
    GError *error = NULL;
    return done(dex_await_fd(dex_aio_open(NULL, path, flags, 0644), &error), error, "open");
}

static void closed(int fd) {
    GError *error = NULL;
    if (!dex_await(dex_aio_close(NULL, fd), &error)) done(-1, error, "close");
}

static void moved(DexFuture *future, const char *what) {
    GError *error = NULL;
    if (done(dex_await_int64(future, &error), error, what) != SIZE) g_error("%s: short", what);
}

static DexFuture *task(gpointer number) {
    char bytes[SIZE], path[PATH_MAX];
    memset(bytes, 7, sizeof bytes);
    for (int i = 0; i < each; i++) {
        snprintf(path, sizeof path, "%s/%d-%d", dir, GPOINTER_TO_INT(number), i % 16);
        int fd = opened(path, O_WRONLY | O_CREAT | O_TRUNC);
        moved(dex_aio_write(NULL, fd, bytes, sizeof bytes, 0), "write");
        closed(fd);
        fd = opened(path, O_RDONLY);
        moved(dex_aio_read(NULL, fd, bytes, sizeof bytes, 0), "read");
        closed(fd);
    }
    if (--running == 0) g_main_loop_quit(loop);
    return dex_future_new_for_boolean(TRUE);
}

int main(int argc, char **argv) {
    if (argc != 4) g_error("usage: files-dex TASKS FILES DIR");
    dex_init();
    const int tasks = running = atoi(argv[1]);
    each = atoi(argv[2]) / tasks;
    dir = argv[3];
    loop = g_main_loop_new(NULL, FALSE);
    const gint64 begin = g_get_monotonic_time();
    for (int i = 0; i < tasks; i++)
        dex_future_disown(dex_scheduler_spawn(NULL, 0, task, GINT_TO_POINTER(i), NULL));
    g_main_loop_run(loop);
    const double seconds = (double)(g_get_monotonic_time() - begin) / 1e6;
    printf("%f\n", each * tasks * REQUESTS / seconds);
    return 0;
}
