/* Files through GLib's libdex: files-dex TASKS FILES DIR [calls]
 * Each task, a fiber, opens, writes and closes one file after the other, then opens, reads and closes
 * it. Prints requests a second. With `calls`, the least that user space must do for the same: each round
 * of the loop makes the system calls of all tasks that wait. Only what truncates a file is left to
 * threads, since it may have to wait for the disk. */
#include <fcntl.h>
#include <libdex.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 4096, REQUESTS = 6 };

static int each, running;
static const char *dir;
static GMainLoop *loop;

static int done(gint64 result, GError *error, const char *what) {
    if (error || result < 0) g_error("%s: %s", what, error ? error->message : "failed");
    return (int)result;
}

/* What a task asks for: open if there is a path, close if there are no bytes. */
typedef struct {
    const char *path;
    int fd, flags;
    void *bytes;
    DexPromise *promise;
} Call;

static GArray *calls;
static GThreadPool *threads;

static gboolean any(GSource *source, int *timeout) {
    (void)source;
    *timeout = -1;
    return calls->len > 0;
}

static gint64 made(const Call *call) {
    if (call->path) return open(call->path, call->flags | O_CLOEXEC, 0644);
    if (!call->bytes) return close(call->fd);
    if (call->flags == O_RDONLY) return pread(call->fd, call->bytes, SIZE, 0);
    return pwrite(call->fd, call->bytes, SIZE, 0);
}

static void make(const Call *call) {
    dex_promise_resolve_int64(call->promise, made(call));
    dex_unref(call->promise);
}

static void make_elsewhere(gpointer call, gpointer data) {
    (void)data;
    make(call);
    g_free(call);
}

static gboolean make_calls(GSource *source, GSourceFunc callback, gpointer data) {
    (void)source, (void)callback, (void)data;
    for (guint i = 0; i < calls->len; i++) make(&g_array_index(calls, Call, i));
    g_array_set_size(calls, 0);
    return G_SOURCE_CONTINUE;
}

static void set_up_calls(void) {
    static GSourceFuncs functions = {.prepare = any, .dispatch = make_calls};
    calls = g_array_new(FALSE, FALSE, sizeof(Call));
    threads = g_thread_pool_new(make_elsewhere, NULL, -1, FALSE, NULL);
    g_source_attach(g_source_new(&functions, sizeof(GSource)), NULL);
}

static gint64 called(Call call, GError **error) {
    call.promise = dex_promise_new();
    DexFuture *result = dex_ref(DEX_FUTURE(call.promise));
    if (call.flags & O_TRUNC)
        g_thread_pool_push(threads, g_memdup2(&call, sizeof call), NULL);
    else
        g_array_append_val(calls, call);
    return dex_await_int64(result, error);
}

static int opened(const char *path, int flags) {
    GError *error = NULL;
    int fd = calls ? called((Call){.path = path, .flags = flags}, &error)
                   : dex_await_fd(dex_aio_open(NULL, path, flags, 0644), &error);
    return done(fd, error, "open");
}

static void closed(int fd) {
    GError *error = NULL;
    gboolean right = calls ? called((Call){.fd = fd}, &error) == 0
                           : dex_await(dex_aio_close(NULL, fd), &error);
    if (!right) done(-1, error, "close");
}

static void wrote(int fd, char *bytes) {
    GError *error = NULL;
    gint64 n = calls ? called((Call){.fd = fd, .flags = O_WRONLY, .bytes = bytes}, &error)
                     : dex_await_int64(dex_aio_write(NULL, fd, bytes, SIZE, 0), &error);
    if (done(n, error, "write") != SIZE) g_error("write: short");
}

static void got(int fd, char *bytes) {
    GError *error = NULL;
    gint64 n = calls ? called((Call){.fd = fd, .flags = O_RDONLY, .bytes = bytes}, &error)
                     : dex_await_int64(dex_aio_read(NULL, fd, bytes, SIZE, 0), &error);
    if (done(n, error, "read") != SIZE) g_error("read: short");
}

static DexFuture *task(gpointer number) {
    char bytes[SIZE], path[PATH_MAX];
    memset(bytes, 7, sizeof bytes);
    for (int i = 0; i < each; i++) {
        snprintf(path, sizeof path, "%s/%d-%d", dir, GPOINTER_TO_INT(number), i % 16);
        int fd = opened(path, O_WRONLY | O_CREAT | O_TRUNC);
        wrote(fd, bytes);
        closed(fd);
        fd = opened(path, O_RDONLY);
        got(fd, bytes);
        closed(fd);
    }
    if (--running == 0) g_main_loop_quit(loop);
    return dex_future_new_for_boolean(TRUE);
}

int main(int argc, char **argv) {
    if (argc != 4 && (argc != 5 || strcmp(argv[4], "calls")))
        g_error("usage: files-dex TASKS FILES DIR [calls]");
    dex_init();
    if (argc == 5) set_up_calls();
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
