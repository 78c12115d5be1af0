package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// eventVersion precedes the resourceVersion in the JSON of a CloudEvent.
const eventVersion = `"k8sresourceversion":"`

// lapse is the result of a turn.
type lapse struct {
	rate   float64    // arrivals/s
	shares [3]float64 // p50, p99 and p999 in ms
}

// stopwatch takes the times of the changes of a turn, by resourceVersion.
type stopwatch struct {
	mu      sync.Mutex
	first   int
	begun   []time.Time
	took    []time.Duration // 0: it has not arrived
	missing int
	end     time.Time // of the last arrival
	done    chan struct{}
}

// start begins a turn of n changes; the first has the version first. The channel is closed when all
// have arrived.
func (w *stopwatch) start(first, n int) (done <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first, w.missing, w.done = first, n, make(chan struct{})
	w.begun, w.took = make([]time.Time, n), make([]time.Duration, n)
	return w.done
}

// sent records that the server is about to send a version.
func (w *stopwatch) sent(version int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun[version-w.first] = time.Now()
}

// arrived finds the version behind a mark of a text, and records its arrival.
func (w *stopwatch) arrived(text []byte, mark string) {
	if _, rest, ok := bytes.Cut(text, []byte(mark)); ok && len(rest) >= len(markVersion) {
		w.came(string(rest[:len(markVersion)]))
	}
}

// came records the arrival of a version. Only the first arrival counts.
func (w *stopwatch) came(text string) {
	now := time.Now()
	version, err := strconv.Atoi(text)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i := version - firstVersion - w.first
	if i < 0 || i >= len(w.took) || w.took[i] > 0 {
		return
	}
	w.took[i], w.end = now.Sub(w.begun[i]), now
	if w.missing--; w.missing == 0 {
		close(w.done)
	}
}

func (w *stopwatch) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.missing
}

// lapse returns the result of a turn in which all changes have arrived.
func (w *stopwatch) lapse() (l lapse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.rate = float64(len(w.took)) / w.end.Sub(w.begun[0]).Seconds()
	slices.Sort(w.took)
	for i, share := range []int{500, 990, 999} {
		l.shares[i] = micros(w.took[(len(w.took)-1)*share/1000]) / 1000
	}
	return l
}

// lines records the arrival of each line of a reader, until its end.
func (w *stopwatch) lines(r io.Reader, mark string) {
	for lines := bufio.NewReaderSize(r, 1<<20); ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		w.arrived(line, mark)
	}
}

// fileArrivals starts a reader of a file, which the kernel wakes after each write.
func fileArrivals(w *stopwatch, path string) (sink string, end func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return "", nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return "", nil, errors.Join(err, file.Close())
	}
	changes := os.NewFile(uintptr(fd), "inotify") //nolint:gosec // a descriptor is not negative
	end = func() { _ = changes.Close(); _ = file.Close() }
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		end()
		return "", nil, fmt.Errorf("inotify: %w", err)
	}
	go w.lines(&follower{file, changes}, eventVersion)
	return fmt.Sprintf("file: {path: %q, maxFiles: 0}", path), end, nil
}

// follower reads a growing file.
type follower struct{ file, changes *os.File }

// Read implements [io.Reader]. It waits for a change at the end of the file.
func (f *follower) Read(p []byte) (int, error) {
	for {
		if n, err := f.file.Read(p); n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		if _, err := f.changes.Read(make([]byte, 4096)); err != nil {
			return 0, err
		}
	}
}
