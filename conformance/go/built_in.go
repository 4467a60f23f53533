//go:build built_in

package main

// The program brings softring along, which begins before Go's runtime does.

// #include <softring.h>
// static void __attribute__((constructor)) begin(void) { softring_install(0); }
import "C"
