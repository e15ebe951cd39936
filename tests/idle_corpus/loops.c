// Event loops and pools of GLib, libuv, libevent and libev. Names of threads say the truth.
#include <ev.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <glib-unix.h>
#include <glib.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <uv.h>

static volatile int done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void named(const char *name) { prctl(PR_SET_NAME, name); }

// What a job waits for.
static void checkout(void) {
    pthread_mutex_lock(&lock);
    while (done != -1) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}
static void ask(void) {
    GAsyncQueue *replies = g_async_queue_new();
    done = g_async_queue_pop(replies) != 0;
}
static void convert(void) {
    g_spawn_command_line_sync("sleep 600", 0, 0, 0, 0);
    done = 2;
}
static void sync_with(void) {
    uv_sem_t answered;
    uv_sem_init(&answered, 0);
    uv_sem_wait(&answered);
    done = 3;
}

// GLib.
static void glib_task(gpointer data, gpointer unused) {
    (void)unused;
    switch (GPOINTER_TO_INT(data)) {
    case 1: named("rest-gpool"); g_usleep(100000); break;
    case 2: named("job-gpool"); checkout(); break;
    case 3: named("job-gpool"); ask(); break;
    case 4: named("job-gpool"); convert(); break;
    }
    done = 4;
}
static gpointer glib_queue(gpointer queue) {
    named("rest-gqueue");
    for (;;) done = g_async_queue_pop(queue) != 0;
    return 0;
}
static gpointer glib_loop(gpointer unused) {
    named("rest-gloop");
    GMainContext *context = g_main_context_new();
    g_main_loop_run(g_main_loop_new(context, 0));
    return unused;
}
static gboolean glib_callback(gpointer unused) {
    named("job-gloop");
    checkout();
    return unused != 0;
}
static gpointer glib_busy_loop(gpointer unused) {
    GMainContext *context = g_main_context_new();
    GSource *source = g_idle_source_new();
    g_source_set_callback(source, glib_callback, 0, 0);
    g_source_attach(source, context);
    g_main_loop_run(g_main_loop_new(context, 0));
    return unused;
}

// libuv: its pool has 4 threads.
static void uv_rest(uv_work_t *work) { (void)work; named("rest-uvpool"); usleep(100000); }
static void uv_job(uv_work_t *work) { (void)work; named("job-uvpool"); checkout(); done = 5; }
static void uv_job_sem(uv_work_t *work) { (void)work; named("job-uvpool"); sync_with(); done = 5; }
static void uv_after(uv_work_t *work, int status) {
    static uv_work_t jobs[2];
    static int finished;
    (void)status;
    if (++finished == 4) {
        uv_queue_work(work->loop, &jobs[0], uv_job, uv_after);
        uv_queue_work(work->loop, &jobs[1], uv_job_sem, uv_after);
    }
}
static void *uv_main(void *unused) {
    named("rest-uvloop");
    static uv_work_t works[4];
    for (int i = 0; i < 4; i++) uv_queue_work(uv_default_loop(), &works[i], uv_rest, uv_after);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    return unused;
}
static void uv_ticked(uv_timer_t *timer) { (void)timer; named("job-uvloop"); checkout(); done = 6; }
static void *uv_busy_main(void *unused) {
    static uv_loop_t loop;
    static uv_timer_t timer;
    uv_loop_init(&loop);
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, uv_ticked, 0, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    return unused;
}

// libevent, libev.
static void event_rest(evutil_socket_t fd, short what, void *unused) { (void)fd, (void)what, (void)unused; }
static void event_job(evutil_socket_t fd, short what, void *unused) {
    (void)fd, (void)what, (void)unused;
    named("job-event");
    checkout();
    done = 7;
}
static void *event_main(void *job) {
    named("rest-event");
    struct event_base *base = event_base_new();
    struct timeval soon = {0, 1000}, never = {3600, 0};
    event_add(event_new(base, -1, EV_PERSIST, job ? event_job : event_rest, 0), job ? &soon : &never);
    event_base_dispatch(base);
    return job;
}
static void ev_ticked(struct ev_loop *loop, ev_timer *timer, int events) {
    (void)loop, (void)timer, (void)events;
    named("job-libev");
    checkout();
    done = 8;
}
static void *ev_main(void *job) {
    named("rest-libev");
    struct ev_loop *loop = ev_loop_new(0);
    ev_timer timer;
    ev_timer_init(&timer, ev_ticked, job ? 0.001 : 3600, 0);
    ev_timer_start(loop, &timer);
    ev_run(loop, 0);
    return job;
}

static void start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    pthread_create(&thread, 0, body, argument);
}

int main(void) {
    GThreadPool *pool = g_thread_pool_new(glib_task, 0, 4, TRUE, 0);
    for (int i = 0; i < 4; i++) g_thread_pool_push(pool, GINT_TO_POINTER(1), 0);
    sleep(1);
    for (int i = 2; i < 5; i++) g_thread_pool_push(pool, GINT_TO_POINTER(i), 0);
    g_thread_new("", glib_queue, g_async_queue_new());
    g_thread_new("", glib_loop, 0);
    g_thread_new("", glib_busy_loop, 0);
    start(uv_main, 0);
    start(uv_busy_main, 0);
    start(event_main, 0);
    start(event_main, (void *)1);
    start(ev_main, 0);
    start(ev_main, (void *)1);
    sleep(1);
    named("rest-loopmain");
    puts("ready");
    fflush(stdout);
    // Most loops watch more than their own descriptor: poll with one is state `io`.
    g_unix_signal_add(SIGUSR1, G_SOURCE_FUNC(glib_callback), 0);
    int ends[2];
    if (pipe(ends) == 0) g_unix_fd_add(ends[0], G_IO_IN, (GUnixFDSourceFunc)glib_callback, 0);
    g_main_loop_run(g_main_loop_new(0, 0));
}
