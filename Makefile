# softring: build, try, test, install. `make demo` and `make test` need only the Rust toolchain and
# a C linker.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
SKIPS := $(TARGET)/skipped-tests
REMARKS := $(TARGET)/test-remarks
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

.PHONY: all build demo loads test clients environments kernels liburing-tests libaio-tests fuzz soak memory support
.PHONY: install install-files uninstall dist check-dist book clean

all: build

build:
	$(CARGO) build --release --workspace

# Loads in the shape of real programs, on the kernel's rings and on softring's in turns. Those of a
# newer Debian run as root in a root of their own, which is made once.
LOADS_ROOT ?= $(TARGET)/loads-root
loads: build
	ci/loads/allowed.py
	ci/loads/ring.py
	ci/loads/event-loop.py --least
	ci/loads/programs.py
	ci/loads/packaged.py --least
	[ -d $(LOADS_ROOT)/usr ] || ci/loads/root.sh $(LOADS_ROOT)
	ci/loads/packaged.py --root $(LOADS_ROOT) --least
	ci/loads/mariadb.py
	ci/loads/guest.py --least

demo: build
	$(RELEASE)/softring demo

# Skipped tests are listed at the end; SOFTRING_TEST_REQUIRE names what may not be missing.
test:
	$(CARGO) build --workspace
	@rm -f $(SKIPS) $(REMARKS)
	SOFTRING_TEST_SKIPS=$(abspath $(SKIPS)) SOFTRING_TEST_REMARKS=$(abspath $(REMARKS)) \
		$(CARGO) test --workspace --no-fail-fast; rc=$$?; \
		if [ -s $(REMARKS) ]; then sort -u $(REMARKS); fi; \
		if [ -s $(SKIPS) ]; then echo "skipped, in whole or in part:"; sort -u $(SKIPS); \
		else echo "no test was skipped"; fi; exit $$rc

# Real programs with io_uring denied, and the tests of runtimes that are built on it; installs the
# Debian packages it needs, and has cargo fetch the runtimes.
clients: build
	ci/clients.sh
	ci/runtimes.sh

# Rings under other people's policies: seccomp filters, limits, namespaces, sandboxes.
environments: build
	ci/environments.sh

# Conformance on Debian's kernels from 5.10 on, in virtual machines.
kernels: build
	ci/kernels.sh

# The tests of Debian's liburing source package, fetched when run.
liburing-tests: build
	ci/liburing-tests.sh

# The tests of Debian's libaio source package: on the kernel's aio, polled, and emulated.
libaio-tests: build
	ci/libaio-tests.sh

# docs/SUPPORT.md from the engine's tables.
support:
	WRITE_SUPPORT=1 $(CARGO) test -p softring-conformance --test support

# Differential fuzzing against the kernel, for an hour.
fuzz:
	ci/fuzz.sh

# Rings under a mix of everything for ten minutes, or for SECONDS; in an unruly process, for HOST;
# and with a million short connections.
soak:
	ci/soak.sh $(if $(SECONDS),--seconds $(SECONDS)) $(if $(HOST),--host $(HOST)) $(if $(CONNECTIONS),--connections $(CONNECTIONS))

# AddressSanitizer and valgrind.
memory:
	ci/memory.sh

# Book of the documents: target/book/html. Builds mdBook, unless it is installed.
book:
	ci/book.sh

# Strips the files, because symbols for debuggers are five times the rest. DESTDIR is a prefix of
# every path, for packagers.
install: build
	$(MAKE) --no-print-directory install-files

# Installs files that are built already: in bin and lib of FROM, or in FROM, as cargo leaves them.
FROM ?= $(RELEASE)
COMMAND = $(firstword $(wildcard $(FROM)/bin/softring) $(FROM)/softring)
LIBRARY = $(firstword $(wildcard $(FROM)/lib/libsoftring.so) $(FROM)/libsoftring.so)
ARCHIVE = $(firstword $(wildcard $(FROM)/lib/libsoftring.a $(FROM)/libsoftring.a))
SHAREDIR = $(PREFIX)/share
GENERATED := $(TARGET)/generated
STRIP ?= strip
PUT = install -D -m 644
PUT_BINARY = install -D -m 755 -s --strip-program=$(STRIP)

install-files:
	$(COMMAND) gen man $(GENERATED)/man
	$(COMMAND) gen completions $(GENERATED)/completions
	$(PUT_BINARY) $(COMMAND) "$(DESTDIR)$(BINDIR)/softring"
	$(PUT_BINARY) $(LIBRARY) "$(DESTDIR)$(LIBDIR)/libsoftring.so"
	$(if $(ARCHIVE),dist/archive.sh $(ARCHIVE) $(GENERATED)/libsoftring.a)
	$(if $(ARCHIVE),$(PUT) $(GENERATED)/libsoftring.a "$(DESTDIR)$(LIBDIR)/libsoftring.a")
	$(PUT) dist/softring.tsan "$(DESTDIR)$(SHAREDIR)/softring/softring.tsan"
	for page in $(GENERATED)/man/*.[1-8]; do \
		$(PUT) "$$page" "$(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/}" || exit; \
	done
	$(PUT) include/softring.h "$(DESTDIR)$(INCLUDEDIR)/softring.h"
	install -d "$(DESTDIR)$(LIBDIR)/pkgconfig"
	sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' -e 's|@VERSION@|$(VERSION)|g' \
		dist/softring.pc.in > "$(DESTDIR)$(LIBDIR)/pkgconfig/softring.pc"
	chmod 644 "$(DESTDIR)$(LIBDIR)/pkgconfig/softring.pc"
	$(PUT) $(GENERATED)/completions/softring.bash \
		"$(DESTDIR)$(SHAREDIR)/bash-completion/completions/softring"
	$(PUT) $(GENERATED)/completions/_softring "$(DESTDIR)$(SHAREDIR)/zsh/site-functions/_softring"
	$(PUT) $(GENERATED)/completions/softring.fish \
		"$(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/softring.fish"

# Removes the files of `make install` with the same PREFIX and DESTDIR, but keeps shared folders.
uninstall:
	rm -f "$(DESTDIR)$(BINDIR)/softring" "$(DESTDIR)$(LIBDIR)/libsoftring.so" \
		"$(DESTDIR)$(LIBDIR)/libsoftring.a" \
		"$(DESTDIR)$(SHAREDIR)/softring/softring.tsan" "$(DESTDIR)$(INCLUDEDIR)/softring.h" \
		"$(DESTDIR)$(LIBDIR)/pkgconfig/softring.pc" \
		"$(DESTDIR)$(SHAREDIR)/bash-completion/completions/softring" \
		"$(DESTDIR)$(SHAREDIR)/zsh/site-functions/_softring" \
		"$(DESTDIR)$(SHAREDIR)/fish/vendor_completions.d/softring.fish" \
		"$(DESTDIR)$(MANDIR)"/man[1-8]/softring.[1-8] "$(DESTDIR)$(MANDIR)"/man[1-8]/softring-*.[1-8]
	[ ! -d "$(DESTDIR)$(SHAREDIR)/softring" ] || \
		rmdir --ignore-fail-on-non-empty "$(DESTDIR)$(SHAREDIR)/softring"

# Packages into dist/out, for other machines: docs/INSTALL.md says which of them runs where.
dist:
	ci/package.sh

# Checks that the packages are the same each time, and can be installed, run, upgraded and removed.
check-dist:
	ci/dist.sh

clean:
	$(CARGO) clean
	rm -rf dist/out
