# softring: build, try, test, install. `make demo` and `make test` need the Rust toolchain and a C linker only.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
PORTABLE := $(TARGET)/portable
# What is installed: what `make build-portable` has made, unless `make build` made a newer one.
BUILT = $(shell [ $(PORTABLE)/lib/libsoftring.so -nt $(RELEASE)/libsoftring.so ] && echo portable)
SKIPS := $(TARGET)/skipped-tests
REMARKS := $(TARGET)/test-remarks
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

.PHONY: all build build-portable demo test clients environments kernels liburing-tests libaio-tests fuzz soak memory support
.PHONY: install book clean

all: build

build:
	$(CARGO) build --release --workspace

# The command and the library for glibc 2.17 and newer, by cargo-zigbuild and zig from PyPI.
build-portable:
	ci/portable.sh

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

# On Debian's kernels from 5.10 on, in virtual machines.
kernels: build
	ci/kernels.sh

# The tests of Debian's liburing source package, fetched when run.
liburing-tests: build
	ci/liburing-tests.sh

# The same of Debian's libaio source package: on the kernel's aio, polled, and emulated.
libaio-tests: build
	ci/libaio-tests.sh

# docs/SUPPORT.md from the engine's tables.
support:
	WRITE_SUPPORT=1 $(CARGO) test -p softring-conformance --test support

# Differential fuzzing against the kernel, for as long as you let it.
fuzz:
	ci/fuzz.sh

# Rings under a mix of everything for ten minutes, or for SECONDS; the same in an unruly process, for
# HOST; a million short connections.
soak:
	ci/soak.sh $(if $(SECONDS),--seconds $(SECONDS)) $(if $(HOST),--host $(HOST)) $(if $(CONNECTIONS),--connections $(CONNECTIONS))

# AddressSanitizer and valgrind.
memory:
	ci/memory.sh

# A book of the documents: target/book/html. Builds mdBook, unless it is installed.
book:
	ci/book.sh

install: build
	$(RELEASE)/softring gen man $(RELEASE)/gen/man
	$(RELEASE)/softring gen completions $(RELEASE)/gen/completions
	install -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBDIR)" \
		"$(DESTDIR)$(MANDIR)/man1" "$(DESTDIR)$(MANDIR)/man7"
	install -m 755 $(if $(BUILT),$(PORTABLE)/bin,$(RELEASE))/softring "$(DESTDIR)$(BINDIR)/softring"
	install -m 755 $(if $(BUILT),$(PORTABLE)/lib,$(RELEASE))/libsoftring.so \
		"$(DESTDIR)$(LIBDIR)/libsoftring.so"
	if [ -n "$(BUILT)" ] && [ -f $(PORTABLE)/lib/softring/musl/libsoftring.so ]; then \
		install -D -m 755 $(PORTABLE)/lib/softring/musl/libsoftring.so \
			"$(DESTDIR)$(LIBDIR)/softring/musl/libsoftring.so"; \
	fi
	install -D -m 644 dist/softring.tsan "$(DESTDIR)$(PREFIX)/share/softring/softring.tsan"
	install -m 644 $(RELEASE)/gen/man/*.1 "$(DESTDIR)$(MANDIR)/man1/"
	install -m 644 $(RELEASE)/gen/man/*.7 "$(DESTDIR)$(MANDIR)/man7/"
	if [ -f include/softring.h ]; then \
		install -D -m 644 include/softring.h "$(DESTDIR)$(INCLUDEDIR)/softring.h"; \
	fi
	if [ -f dist/softring.pc.in ]; then \
		install -d "$(DESTDIR)$(LIBDIR)/pkgconfig"; \
		sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' \
			-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' -e 's|@VERSION@|$(VERSION)|g' \
			dist/softring.pc.in > "$(DESTDIR)$(LIBDIR)/pkgconfig/softring.pc"; \
	fi
	install -D -m 644 $(RELEASE)/gen/completions/softring.bash \
		"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/softring"
	install -D -m 644 $(RELEASE)/gen/completions/_softring \
		"$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_softring"
	install -D -m 644 $(RELEASE)/gen/completions/softring.fish \
		"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/softring.fish"

clean:
	$(CARGO) clean
