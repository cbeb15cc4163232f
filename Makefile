# `make demo` and `make test` need nothing but a Debian machine with Rust; `make help` lists the rest.

# rustup puts cargo here, but a fresh shell may not look there yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

OUT ?= out
PREFIX ?= /usr/local
CARGO ?= cargo
# The file that tests write into when they are skipped.
SKIPS ?= $(abspath target/skips)

.DEFAULT_GOAL := help
.PHONY: help demo papers papers-cats test test-long test-kernel bench lint doc bpf man install install-c picture release clean prepare

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# Without optimisation: links of 2 Mbit/s keep no processor busy, and a newcomer should not wait for a compiler.
demo: prepare ## Load web pages over real QUIC and HTTP/2 through an emulated link: FIFO against Marcato (a minute)
	$(CARGO) build --locked -p marcato-cli
	@./target/debug/marcato demo --out $(OUT)/demo

# Status 1 is a value outside its band: there is a report all the same.
papers-cats: prepare ## Run the CATS experiments in virtual time and write their report
	$(CARGO) build --release --locked -p marcato-cli
	@./target/release/marcato papers cats --out $(OUT)/cats || [ $$? -eq 1 ]

papers: prepare ## Run every experiment in full, with five seeds (a few hours)
	$(CARGO) build --release --locked -p marcato-cli
	./target/release/marcato papers all --repeat 5 --out $(OUT) || [ $$? -eq 1 ]

test: prepare ## Run every test that takes seconds, examples in the documentation too
	@rm -f $(SKIPS) && mkdir -p $(dir $(SKIPS))
	@status=0; MARCATO_SKIPS=$(SKIPS) CARGO="$(CARGO)" tools/tests/run || status=$$?; \
		tools/cache/run save; tools/skips/run $(SKIPS); exit $$status

test-long: prepare ## Fuzz, run the slow tests and the benches (about half an hour)
	bash .ci/long

test-kernel: prepare ## Run the tests of CRQ in Debian's kernels on an emulated processor (under 6 minutes)
	tools/kernel-tests/run

bench: prepare ## Measure speed
	$(CARGO) bench --workspace --locked --benches

lint: prepare ## Check formatting, names of tests, and lints
	$(CARGO) fmt --all --check
	tools/names/check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

doc: prepare ## Build the documentation
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

bpf: prepare ## Write the compiled eBPF programs beside their sources, for builds on machines without clang
	$(CARGO) run --quiet --locked -p marcato-kernel --example object -- crates/marcato-kernel/bpf/crq.bpf.o crates/marcato-kernel/bpf/marks.bpf.o

man: prepare ## Write the manual pages of the command into target/man
	$(CARGO) run --release --locked -p marcato-cli -- manual target/man

install: man ## Install the command and its manual pages below PREFIX (/usr/local)
	$(CARGO) build --release --locked -p marcato-cli
	install -D -m 755 target/release/marcato $(DESTDIR)$(PREFIX)/bin/marcato
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 target/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/

install-c: prepare ## Install the C library, its header and its pkg-config file below PREFIX (/usr/local)
	$(CARGO) build --release --locked -p marcato-ffi
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 644 crates/marcato-ffi/include/marcato.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 target/release/libmarcato.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 target/release/libmarcato.so $(DESTDIR)$(PREFIX)/lib/libmarcato.so.1
	ln -sf libmarcato.so.1 $(DESTDIR)$(PREFIX)/lib/libmarcato.so
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)|' \
		crates/marcato-ffi/marcato.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/marcato.pc

release: prepare ## Write packages, archives of the crates and a bill of materials of VERSION into dist/
	tools/release/run "$(VERSION)"

picture: papers demo ## Redraw the pictures in README.md and docs/ from real runs
	cp $(OUT)/cats/completion.svg docs/cats.svg
	cp $(OUT)/cwr/fig4b-mct.svg docs/cwr.svg
	cp $(OUT)/demo/page.svg docs/demo.svg
	cp $(OUT)/plt/fig3.svg docs/plt.svg

clean: ## Remove what was built and written
	$(CARGO) clean
	rm -rf $(OUT)

prepare:
	@bash tools/prepare
