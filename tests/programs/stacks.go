// Allocates in C below stacks of Go whose functions it prints: "SIZE FUNCTION FUNCTION …", innermost first. Each size is
// asked for once.
package main

/*
#include <stdlib.h>

void allocate_in_go(int size);

static __attribute__((noinline)) void *allocate(int size) { return malloc(size); }
static __attribute__((noinline)) void through_c(int size) { allocate_in_go(size); }
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

var (
	next   atomic.Int64
	output sync.Mutex
	kept   [1 << 17]unsafe.Pointer
)

// One whole line, so that lines of threads do not mix.
func printStack(size int) {
	var counters [4096]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(2, counters[:])])
	names := []string{}
	for {
		frame, more := frames.Next()
		names = append(names, frame.Function)
		if !more {
			break
		}
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(size, strings.Join(names, " "))
}

//go:noinline
func allocate() {
	size := 100_000 + int(next.Add(1))
	printStack(size)
	kept[size-100_000] = C.allocate(C.int(size))
}

//go:noinline
//export allocate_in_go
func allocate_in_go(size C.int) {
	allocate()
}

// Grows the stack, so that Go moves it, with frames of different sizes.
//
//go:noinline
func recurse(depth int) int {
	if depth == 0 {
		allocate()
		return 1
	}
	if depth%3 == 0 {
		return recurseWide(depth-1) + 1
	}
	return recurse(depth-1) + 1
}

//go:noinline
func recurseWide(depth int) int {
	var wide [500]byte
	wide[depth%500] = 1
	if depth%7 == 0 {
		allocate()
	}
	return recurse(max(0, depth-1)) + int(wide[depth%500])
}

type walker interface{ walk(int) }
type deep struct{}
type closure struct{}

// No call of a variable is inlined.
var call = func(depth int) { recurse(depth) }

func (*deep) walk(depth int)    { recurse(depth) }
func (*closure) walk(depth int) { call(depth) }

func main() {
	walkers := []walker{&deep{}, &closure{}}
	var group sync.WaitGroup
	for number := range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			if number%4 == 0 {
				runtime.LockOSThread()
			}
			for depth := range 60 {
				walkers[(depth+number)%2].walk(depth * 2)
				runtime.Gosched()
			}
		}()
	}
	group.Wait()
	recurse(5)
	C.through_c(0)
}
