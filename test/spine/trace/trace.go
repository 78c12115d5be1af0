// Package trace records calls and locks in the router that test/spine builds: the overlay of that
// command adds the calls of this package to the functions of the product, which never imports it.
package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// Variable is the environment variable with the path of the socket on which Serve listens.
const Variable = "SPINE_SOCKET"

// The requests that Serve answers, one a line.
const (
	Begin = "begin" // opens a window; the answer is the line "ok"
	Count = "count" // the answer is the number of records in the window
	End   = "end"   // closes the window; the answer is its records, a list in JSON in one line
)

// Kind is the kind of a record.
type Kind byte

// The kinds of records.
const (
	Entered Kind = 'e' // a function begins
	Left    Kind = 'l' // a function ends
	Locking Kind = 'k' // a lock is about to be taken
)

// Record is one event of the window.
type Record struct {
	Kind      Kind
	Goroutine int
	ID        int // of the function, or of the lock in the source
	// Caller is the function that calls this one, unless Running has it. It may be another one than
	// the last that began: the body of a loop over a function is called by that function, but it is
	// part of the function around it.
	Caller Frame
	// Running are the functions of the goroutine that began before the window, the outermost one
	// first. Only a call that none of the window encloses has them.
	Running []Frame `json:",omitempty"`
}

// Frame is a function that was running before the window, by a line of its source.
type Frame struct {
	File string
	Line int
}

// window holds the records between Begin and End. It is a package variable, because the calls that
// the overlay adds share nothing else.
var window struct {
	open atomic.Bool

	mu      sync.Mutex
	number  int // of windows so far
	records []Record
	depth   map[int]int // calls of the window that have not ended, by goroutine
}

// Enter records that a function begins, and returns the function that records its end. Outside of
// the window it does nothing.
func Enter(id int) (leave func()) {
	if !window.open.Load() {
		return nothing
	}
	goroutine := current()
	number := add(Record{Kind: Entered, Goroutine: goroutine, ID: id})
	return func() {
		window.mu.Lock()
		defer window.mu.Unlock()
		if window.open.Load() && window.number == number {
			window.depth[goroutine]--
			window.records = append(window.records, Record{Kind: Left, Goroutine: goroutine, ID: id})
		}
	}
}

func nothing() {}

// Lock records that a lock is about to be taken.
func Lock(id int) {
	if window.open.Load() {
		add(Record{Kind: Locking, Goroutine: current(), ID: id})
	}
}

// add appends a record, and returns the number of its window.
func add(r Record) int {
	window.mu.Lock()
	defer window.mu.Unlock()
	if !window.open.Load() {
		return 0
	}
	if window.depth[r.Goroutine] == 0 {
		r.Running = callers(200)
	} else if r.Kind == Entered {
		r.Caller = callers(1)[0]
	}
	if r.Kind == Entered {
		window.depth[r.Goroutine]++
	}
	window.records = append(window.records, r)
	return window.number
}

// callers returns up to so many callers of the function that has called Enter or Lock, the
// outermost one first. At least one is there: the function that the goroutine began with.
func callers(most int) (stack []Frame) {
	const own = 5 // Callers, callers, add, Enter or Lock, and the function
	pcs := make([]uintptr, most)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(own, pcs)])
	for {
		frame, more := frames.Next()
		stack = append(stack, Frame{frame.File, frame.Line})
		if !more || len(stack) == most {
			slices.Reverse(stack)
			return stack
		}
	}
}

// current returns the number of the calling goroutine: the runtime has no other way to ask for it
// than the head of a stack trace, "goroutine 7 [running]:".
func current() int {
	buffer := make([]byte, 64)
	head := bytes.TrimPrefix(buffer[:runtime.Stack(buffer, false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(head, []byte(" "))
	n, err := strconv.Atoi(string(number))
	if err != nil {
		panic("a stack trace begins with " + string(buffer))
	}
	return n
}

// Serve listens for the requests of test/spine until the process ends. The overlay calls it at the
// beginning of main. Without Variable it does nothing.
func Serve() {
	path := os.Getenv(Variable)
	if path == "" {
		return
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			serve(connection)
		}
	}()
}

// serve answers the requests of one connection. An unknown one ends it.
func serve(connection net.Conn) {
	defer func() { _ = connection.Close() }()
	requests := bufio.NewScanner(connection)
	for requests.Scan() {
		answer, known := do(requests.Text())
		if !known {
			return
		}
		if _, err := connection.Write(append(answer, '\n')); err != nil {
			return
		}
	}
}

func do(request string) (answer []byte, known bool) {
	window.mu.Lock()
	defer window.mu.Unlock()
	switch request {
	case Begin:
		window.number++
		window.records, window.depth = nil, make(map[int]int)
		window.open.Store(true)
		return []byte("ok"), true
	case Count:
		return strconv.AppendInt(nil, int64(len(window.records)), 10), true
	case End:
		window.open.Store(false)
		answer, err := json.Marshal(window.records)
		if err != nil {
			panic(err)
		}
		return answer, true
	}
	return nil, false
}
