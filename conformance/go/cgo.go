//go:build cgo

package main

// The dynamic loader's: with CGO_ENABLED=0 this file is left out, and the program is static.

// static int dynamic(void) { return 1; }
import "C"

func init() { dynamic = C.dynamic() == 1 }
