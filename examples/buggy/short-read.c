/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The bug: a READ that has read something is taken for one that has read everything. */
#include "ring.h"

enum { SIZE = 32768 };

static char data[SIZE];

int main(void)
{
	struct ring ring;
	int fd = new_file("short-read.data");

	fill(data, SIZE, 0);
	need(pwrite(fd, data, SIZE, 0) == SIZE ? 0 : -1, "pwrite");
	memset(data, 0, SIZE);
	ring_init(&ring, 4, 0);
#ifdef FIXED
	for (unsigned done = 0; done < SIZE;) {
		int res = ring_do(&ring, OP_READ, fd, data + done, SIZE - done, done);

		if (res < 0)
			gave_up("READ", res);
		if (res == 0)
			wrong("the file ends at byte %u", done);
		done += res;
	}
#else
	int res = ring_do(&ring, OP_READ, fd, data, SIZE, 0);

	if (res < 0)
		gave_up("READ", res);
#endif
	unsigned at = first_wrong(data, SIZE, 0);

	if (at < SIZE)
		wrong("byte %u is not the file's: the READ was short", at);
	return 0;
}
