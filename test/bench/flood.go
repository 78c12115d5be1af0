package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// flood is a server for whole routers: it has a cluster's identity, answers with its current
// version, and sends a requested number of changes.
type flood struct {
	*server

	version atomic.Int64 // the last one sent
	created atomic.Int64 // pods beside the first ones

	mu   sync.Mutex
	asks chan ask // requests of the open watch
}

// ask is a request for n changes.
type ask struct {
	n       int
	rate    int               // on average per second, at random times; 0: as fast as they are read
	created bool              // each is a new pod, not an update
	alone   bool              // each is written by itself, as the API server does
	note    func(version int) // called before each is sent; nil: it is not
}

// startFlood starts a server with a number of pods, over TLS if it is secure.
func startFlood(objects int, secure bool) (*flood, error) {
	pod, err := newPodFrames()
	if err != nil {
		return nil, err
	}
	f := &flood{server: &server{pod: pod, objects: objects, secure: secure}, asks: make(chan ask, 1)}
	f.version.Store(int64(objects))
	mux := f.listen(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"flood"}}`)
	mux.HandleFunc("GET /api/v1/pods", f.pods)
	return f, nil
}

// send makes the open watch send n more updates, as fast as they are read.
func (f *flood) send(n int) { f.request(ask{n: n}) }

func (f *flood) request(a ask) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks <- a
}

func (f *flood) pods(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		// Only the router asks, to compare the number of pods: all count as on later pages.
		text(fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":"more","remainingItemCount":%d},"items":[]}`,
			firstVersion+f.version.Load(), int64(f.objects)+f.created.Load()))(w, r)
		return
	}
	f.mu.Lock()
	asks := make(chan ask, 1)
	f.asks = asks
	f.mu.Unlock()
	frames, contentType := f.accepted(r)
	w.Header().Set("Content-Type", contentType)
	out := bufio.NewWriterSize(w, 256<<10)
	if from := r.URL.Query().Get("resourceVersion"); from == "" || strings.TrimLeft(from, "0") == "" {
		f.version.Store(int64(f.objects))
		for i := range f.objects {
			_, _ = out.Write(frames["ADDED"].fill(i, i))
		}
		_, _ = out.Write(f.bookmark(contentType))
	} else if at, err := strconv.ParseInt(from, 10, 64); err != nil || at != firstVersion+f.version.Load() {
		http.Error(w, "a watch was cut while it was measured", http.StatusInternalServerError)
		return
	}
	flush(out, w)
	for {
		select {
		case a := <-asks:
			if f.answer(a, frames, out, w) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// answer sends the changes of a request.
func (f *flood) answer(a ask, frames map[string]*template, out *bufio.Writer, w http.ResponseWriter) error {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // each contender gets the same times
	due := time.Now()
	for range a.n {
		if a.rate > 0 {
			due = due.Add(time.Duration(random.ExpFloat64() / float64(a.rate) * float64(time.Second)))
			time.Sleep(time.Until(due))
		}
		v := int(f.version.Add(1))
		frame, pod := frames["MODIFIED"], v%f.objects
		if a.created {
			frame, pod = frames["ADDED"], v
			f.created.Add(1)
		}
		if a.note != nil {
			a.note(v)
		}
		if _, err := out.Write(frame.fill(pod, v)); err != nil {
			return err
		}
		if a.rate > 0 || a.alone {
			flush(out, w)
		}
	}
	flush(out, w)
	return nil
}
