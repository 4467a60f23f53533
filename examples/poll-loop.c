/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A poll loop as packet processors have it, which says what it really does: it holds its processor at 100 %, and
 * works for as much of that as there are packets.
 *
 *	cc -O2 -o poll-loop poll-loop.c $(pkg-config --cflags --libs softring)
 *	./poll-loop 25 10 &			# a load of 25 % for 10 seconds
 *	softring metrics -p $!
 *
 * The meter is declared weak here, so that the program also runs without the library: build it without pkg-config,
 * and start it with `softring run --engine=kernel -- ./poll-loop 25 10`.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <softring.h>

#pragma weak softring_meter_create
#pragma weak softring_meter_begin
#pragma weak softring_meter_end
#pragma weak softring_meter_read
#pragma weak softring_meter_destroy

#define PERIOD_NS 500000 /* between two bursts */

static unsigned long long now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* A queue whose next burst is due at `next`: as much work in ns as has come, or 0. */
struct queue {
	unsigned long long next;
	unsigned long long burst;
};

static unsigned long long rx_burst(struct queue *q)
{
	if (now(CLOCK_MONOTONIC) < q->next)
		return 0;
	q->next += PERIOD_NS;
	return q->burst;
}

/* Handles a burst; answers how long that took by the thread's own clock. */
static unsigned long long handle(unsigned long long burst)
{
	unsigned long long start = now(CLOCK_THREAD_CPUTIME_ID), end = start;

	while (end - start < burst)
		end = now(CLOCK_THREAD_CPUTIME_ID);
	return end - start;
}

int main(int argc, char **argv)
{
	double percent = argc > 1 ? atof(argv[1]) : 10, seconds = argc > 2 ? atof(argv[2]) : 1;
	struct queue q = { now(CLOCK_MONOTONIC), PERIOD_NS * percent / 100 };
	unsigned long long end = q.next + seconds * 1e9, first, work = 0;
	uint64_t total_us = 0, work_us = 0;
	struct softring_meter *m = NULL;

	if (softring_meter_create)
		m = softring_meter_create("poll-loop");
	first = now(CLOCK_THREAD_CPUTIME_ID);
	while (now(CLOCK_MONOTONIC) < end) {
		unsigned long long burst = rx_burst(&q);

		if (burst == 0) {
			if (m)
				softring_meter_end(m);
			continue;
		}
		if (m)
			softring_meter_begin(m);
		work += handle(burst);
	}
	if (m) {
		softring_meter_end(m);
		softring_meter_read(m, &total_us, &work_us);
	}
	printf("by hand %llu of %llu us, by the meter %llu of %llu us\n", work / 1000,
	       (now(CLOCK_THREAD_CPUTIME_ID) - first) / 1000, (unsigned long long)work_us,
	       (unsigned long long)total_us);
	fflush(stdout);
	/* The meter can be looked at until the input ends. */
	if (argc > 3)
		getchar();
	if (m)
		softring_meter_destroy(m);
	return 0;
}
