/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The bug: a WRITE that has written something is taken for one that has written everything. */
#include "ring.h"

enum { SIZE = 32768 };

static char data[SIZE];

int main(void)
{
	struct ring ring;
	int fd = new_file("short-write.data");

	fill(data, SIZE, 0);
	ring_init(&ring, 4, 0);
#ifdef FIXED
	ring_write_all(&ring, fd, data, SIZE, 0);
#else
	int res = ring_do(&ring, OP_WRITE, fd, data, SIZE, 0);

	if (res < 0)
		gave_up("WRITE", res);
#endif
	long size = lseek(fd, 0, SEEK_END);

	if (size != SIZE)
		wrong("the file ends at byte %ld: the WRITE was short", size);
	return 0;
}
