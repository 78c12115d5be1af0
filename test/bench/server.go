package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// server implements the part of the Kubernetes API that a watch of pods needs: first the pods,
// then, after a request, the updates, as fast as the consumer reads them.
type server struct {
	http    *httptest.Server
	url     string
	secure  bool // over TLS, with HTTP/2 if the client speaks it, as the API server does
	pod     *podFrames
	objects int
	updates int

	mu      sync.Mutex
	started chan struct{} // closed to start the updates; a new one for each watch
	live    bool          // send a change each millisecond instead
	version int           // version of the last of these changes
	listed  int           // number of lists of all pods
}

func startServer(objects, updates int) (*server, error) {
	pod, err := newPodFrames()
	if err != nil {
		return nil, err
	}
	s := &server{pod: pod, objects: objects, updates: updates, started: make(chan struct{})}
	mux := s.listen(`{"kind":"Namespace","metadata":{"name":"kube-system","uid":"wire"}}`)
	mux.HandleFunc("GET /api/v1/pods", s.pods)
	mux.HandleFunc("POST /go", s.start)
	return s, nil
}

// listen serves the first requests of all consumers: the resources, and the namespace that
// identifies a cluster. The caller adds the rest.
func (s *server) listen(identity string) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api", text(`{"kind":"APIVersions","versions":["v1"]}`))
	mux.HandleFunc("GET /apis", text(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
	mux.HandleFunc("GET /api/v1", text(`{"kind":"APIResourceList","groupVersion":"v1","resources":[`+
		`{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}`))
	mux.HandleFunc("GET /api/v1/namespaces/kube-system", text(identity))
	s.http = httptest.NewUnstartedServer(mux)
	if s.http.EnableHTTP2 = s.secure; s.secure {
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
	s.url = s.http.URL
	return mux
}

func (s *server) close() {
	_ = s.http.Config.Close() // the handlers of open watches end with their connections
	s.http.Close()
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
	}
}

func (s *server) start(http.ResponseWriter, *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.started)
}

func (s *server) pods(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.started = make(chan struct{})
	started, live, version := s.started, s.live, s.version
	s.mu.Unlock()
	if r.URL.Query().Get("watch") == "" {
		text(fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[]}`, firstVersion+version))(w, r)
		return
	}

	frames, contentType := s.accepted(r)
	w.Header().Set("Content-Type", contentType)
	out := bufio.NewWriterSize(w, 256<<10)
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		s.mu.Lock()
		s.listed++
		s.mu.Unlock()
		for i := range s.objects {
			_, _ = out.Write(frames["ADDED"].fill(i, i))
		}
		_, _ = out.Write(s.bookmark(contentType))
	}
	flush(out, w)
	if live {
		s.change(r.Context(), out, w)
		return
	}
	select {
	case <-started:
	case <-r.Context().Done():
		return
	}
	for i := range s.updates {
		if _, err := out.Write(frames["MODIFIED"].fill(i%s.objects, s.objects+1+i)); err != nil {
			return
		}
	}
	flush(out, w)
	<-r.Context().Done()
}

// accepted returns the frames that a watch wants, and their media type.
func (s *server) accepted(r *http.Request) (frames map[string]*template, contentType string) {
	accept := r.Header.Get("Accept")
	switch {
	case strings.Contains(accept, "PartialObjectMetadata"):
		return s.pod.metadata, "application/json"
	case strings.Contains(accept, "protobuf"):
		return s.pod.proto, "application/vnd.kubernetes.protobuf;stream=watch"
	}
	return s.pod.json, "application/json"
}

// change sends a change of a pod each millisecond.
func (s *server) change(ctx context.Context, out *bufio.Writer, w http.ResponseWriter) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		s.version++
		_, _ = out.Write(s.pod.json["MODIFIED"].fill(s.version%s.objects, s.version))
		s.mu.Unlock()
		flush(out, w)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// bookmark is the frame that ends the initial events.
func (s *server) bookmark(contentType string) []byte {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: fmt.Sprint(firstVersion + s.objects),
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	}
	if strings.Contains(contentType, "protobuf") {
		frame, _ := protoFrame("BOOKMARK", pod)
		return frame
	}
	return fmt.Appendf(nil, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":`+
		`{"resourceVersion":%q,"creationTimestamp":null,"annotations":{%q:"true"}}}}`+"\n", pod.ResourceVersion, metav1.InitialEventsAnnotationKey)
}

func flush(out *bufio.Writer, w http.ResponseWriter) {
	_ = out.Flush()
	_ = http.NewResponseController(w).Flush()
}
