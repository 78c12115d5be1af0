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
)

// What a client may take: the probes answer to whoever reaches the port.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second // a scrape of many series over a slow line
	idleTimeout    = 2 * time.Minute  // longer than a scrape interval
	maxHeaderBytes = 16 << 10
	maxMessage     = 1 << 10 // bytes of a check's line
)

// Check is one line of /readyz.
type Check struct {
	Name string // sources/pods
	OK   bool
	// Holds says whether the router is not ready while the check is not OK. One that does not hold is named only: a source whose
	// resource is forbidden or does not exist yet must not take the others out of service.
	Holds   bool
	Message string // why it is not OK; never an object's content. It is shown as one line of at most 1 KiB
}

// Config is what a Server needs.
type Config struct {
	Addr    string         // host:port, as in listen.probes; port 0 is a free one
	Metrics http.Handler   // answers /metrics; nil: there is none
	Checks  func() []Check // in the order of /readyz; called for each request, from any goroutine; nil: always ready
	Log     *slog.Logger
}

// Server serves the probes, or the control API.
type Server struct {
	name string // of its key under listen: probes or api
	log  *slog.Logger
	http http.Server
	done chan struct{} // closed when serving has ended

	mu       sync.Mutex
	listener net.Listener // nil before Start
	closed   bool
}

// New makes a Server of the probes, which listens nowhere yet.
func New(cfg Config) *Server {
	return newServer("probes", cfg.Addr, probes(cfg), cfg.Log)
}

func newServer(name, addr string, handler http.Handler, log *slog.Logger) *Server {
	s := &Server{name: name, log: log, done: make(chan struct{})}
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

// Start listens, and serves until [Server.Close]. The error says that the address cannot be listened on, or that the Server was
// started or closed before.
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
	s.listener = listener
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("requests are not served any more", "for", s.name, "error", err)
		}
	}()
	s.log.Info("listening", "for", s.name, "address", listener.Addr().String())
	return nil
}

// Addr returns the address that is listened on, with the port that was chosen for 0; empty before Start.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Close stops listening and waits for the requests that are being answered, no longer than ctx. It may be called without Start and
// more than once.
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

// ready answers in the way of Kubernetes' own components: one line per check, and a last one that says it all.
func (cfg Config) ready(w http.ResponseWriter, _ *http.Request) {
	var checks []Check
	if cfg.Checks != nil {
		checks = cfg.Checks()
	}
	var b strings.Builder
	var holding []string
	for _, c := range checks {
		if c.OK {
			fmt.Fprintf(&b, "[+]%s: ok\n", c.Name)
			continue
		}
		fmt.Fprintf(&b, "[-]%s: %s\n", c.Name, oneLine(c.Message))
		if c.Holds {
			holding = append(holding, c.Name)
		}
	}
	if len(holding) > 0 {
		fmt.Fprintf(&b, "not ready: waiting for %s\n", strings.Join(holding, ", "))
		answer(w, http.StatusServiceUnavailable, b.String())
		return
	}
	b.WriteString("ready\n")
	answer(w, http.StatusOK, b.String())
}

func answer(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a client that went away misses nothing
}

func oneLine(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if message == "" {
		return "not ok"
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}
