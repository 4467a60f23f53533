/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: nobody looks at the result of the FSYNC. If it failed, the data may be lost, and the new file must not take the
 * old one's place. (Needs errors of the hardware: --faults hostile.)
 */
#include "ring.h"

enum { SIZE = 4096, FILES = 6 };

static char data[SIZE];

int main(void)
{
	struct ring ring;

	ring_init(&ring, 4, 0);
	for (unsigned n = 0; n < FILES; n++) {
		int fd = new_file("fsync-result.new");

		fill(data, SIZE, n * SIZE);
		ring_write_all(&ring, fd, data, SIZE, 0);
		int synced = ring_do(&ring, OP_FSYNC, fd, NULL, 0, 0);

#ifdef FIXED
		if (synced < 0)
			gave_up("FSYNC", synced);
#endif
		need(rename("fsync-result.new", "fsync-result.data"), "rename");
		if (synced < 0)
			wrong("file %u takes the place of the old one, and may be lost: %s", n, strerror(-synced));
		close(fd);
	}
	return 0;
}
