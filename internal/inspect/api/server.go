package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// What clients may take: the probes answer to whoever reaches the port.
const (
	// connections, of about 20 KB each; of more, each waits until another is closed
	maxProbes      = 256
	maxControls    = 64
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second // a scrape of many series over a slow line
	idleTimeout    = 10 * time.Second // the probes keep no idle connection
	maxHeaderBytes = 16 << 10
	maxMessage     = 1 << 10 // bytes of a check's message
)

// Check says how a part of the router is. /readyz has its name, and [Status] all of it.
type Check struct {
	Name string `json:"name"` // sources/pods
	OK   bool   `json:"ok"`
	// Holds says whether the router is not ready while the check is not OK. One that does not hold
	// is named only: a source whose resource is forbidden or does not exist yet must not take the
	// others out of service.
	Holds   bool   `json:"holds,omitempty"`
	Message string `json:"message,omitempty"` // why it is not OK; never an object's content
}

// Config is what a Server needs.
type Config struct {
	Addr    string       // host:port, as in listen.probes; port 0 is a free one
	Metrics http.Handler // answers /metrics; nil: there is none
	// in the order of /readyz; called for each request, from any goroutine; nil: always ready
	Checks func() []Check
	Log    *slog.Logger
}

// Server serves the probes, or the control API.
type Server struct {
	name string // of its key under listen: probes or api
	most int    // connections at the same time
	log  *slog.Logger
	http http.Server
	done chan struct{} // closed when serving has ended

	mu       sync.Mutex
	listener net.Listener // nil before Start
	closed   bool
}

// New makes a Server of the probes, which listens nowhere yet.
func New(cfg Config) *Server {
	s := newServer("probes", cfg.Addr, probes(cfg), cfg.Log)
	s.most = maxProbes
	s.http.SetKeepAlivesEnabled(false) // an idle connection would keep its place from others
	return s
}

func newServer(name, addr string, handler http.Handler, log *slog.Logger) *Server {
	s := &Server{name: name, most: maxControls, log: log, done: make(chan struct{})}
	s.http = http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients' mistakes
	}
	return s
}

// Start listens, and serves until [Server.Close]. The error says that the address cannot be
// listened on, or that the Server was started or closed before.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil || s.closed {
		return fmt.Errorf("listen.%s: the server was started or closed before: this is a bug of the router", s.name)
	}
	listener, err := listen(ctx, s.http.Addr)
	if err != nil {
		return fmt.Errorf("listen.%s: cannot listen on %q, choose another address: %w", s.name, s.http.Addr, err)
	}
	s.listener = netutil.LimitListener(listener, s.most)
	go func() {
		defer close(s.done)
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("requests are not served any more", "for", s.name, "err", err)
		}
	}()
	s.log.Info("listening", "for", s.name, "address", listener.Addr().String())
	return nil
}

// Addr returns the address that is listened on, with the port that was chosen for 0; empty before
// Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Close stops listening and waits for the requests that are being answered, no longer than ctx. It
// may be called without Start and more than once.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	started := s.listener != nil
	s.closed = true
	s.mu.Unlock()
	if !started {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("listen.%s: requests were cut off: %w", s.name, err), s.http.Close())
	}
	<-s.done
	return err
}

// probes answers GET and HEAD on three paths; the mux says 404 and 405 to all else.
func probes(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", cfg.ready)
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
	return mux
}

// ready names what is not well, in the way of Kubernetes' own components; a last line says it all.
// Reasons hold the names of hosts and objects, and may hold what a guest says: the control API has
// them.
func (cfg Config) ready(w http.ResponseWriter, _ *http.Request) {
	var checks []Check
	if cfg.Checks != nil {
		checks = cfg.Checks()
	}
	var b strings.Builder
	for _, c := range checks {
		if !c.OK {
			fmt.Fprintf(&b, "[-]%s: not ok\n", c.Name)
		}
	}
	if holding := holding(checks); len(holding) > 0 {
		fmt.Fprintf(&b, "not ready: waiting for %s\n", strings.Join(holding, ", "))
		answer(w, http.StatusServiceUnavailable, b.String())
		return
	}
	b.WriteString("ready\n")
	answer(w, http.StatusOK, b.String())
}

// holding returns the names of the checks because of which the router is not ready.
func holding(checks []Check) (names []string) {
	for _, c := range checks {
		if !c.OK && c.Holds {
			names = append(names, c.Name)
		}
	}
	return names
}

func answer(w http.ResponseWriter, status int, text string) {
	begin(w, status, "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // a client that went away misses nothing
}

// begin writes the head of an answer.
func begin(w http.ResponseWriter, status int, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

// short cuts a message.
func short(message string) string {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}
