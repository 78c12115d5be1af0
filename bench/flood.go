package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// flood is a server for whole routers: it has a cluster's identity, answers with its current
// version, and sends a requested number of updates as fast as they are read.
type flood struct {
	*server

	version atomic.Int64 // the last one sent

	mu   sync.Mutex
	asks chan int // requests of the open watch
}

func startFlood(objects int) (*flood, error) {
	pod, err := newPodFrames()
	if err != nil {
		return nil, err
	}
	f := &flood{server: &server{pod: pod, objects: objects}, asks: make(chan int, 1)}
	f.version.Store(int64(objects))
	mux, err := f.listen(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"flood"}}`)
	if err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /api/v1/pods", f.pods)
	return f, nil
}

// send makes the open watch send n more updates.
func (f *flood) send(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asks <- n
}

func (f *flood) pods(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		text(fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, firstVersion+f.version.Load()))(w, r)
		return
	}
	f.mu.Lock()
	asks := make(chan int, 1)
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
		case n := <-asks:
			for range n {
				v := int(f.version.Add(1))
				if _, err := out.Write(frames["MODIFIED"].fill(v%f.objects, v)); err != nil {
					return
				}
			}
			flush(out, w)
		case <-r.Context().Done():
			return
		}
	}
}
