package budgets_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/webhook"
	"github.com/deltarouter/deltarouter/test/must"
)

// posts returns the allocations of the webhook sink for an event that it posts. Its receiver is on
// loopback, and allocates nothing for a request.
func posts(t *testing.T) usage {
	t.Helper()
	ctx := t.Context()
	node, problems := config.ParseNode("budgets", fmt.Appendf(nil, "{url: %q, body: event.data}", receiver(t)))
	must.Succeed(t, problems.Err())
	sink, err := webhook.Kind().Open(ctx, node, plugins.SinkEnv{Env: plugins.Env{Name: "out", Log: slog.New(slog.DiscardHandler), Metrics: metrics.New()}})
	must.Succeed(t, err)
	defer func() { must.Succeed(t, sink.Close(context.WithoutCancel(ctx))) }()
	events := make([]event.Event, pods)
	for i := range events {
		events[i] = event.Event{ID: fmt.Sprint(i), Type: "t", Source: "s", Data: []byte(`{"name": "a"}`)}
	}
	least := most()
	for range 1 + rounds {
		least = least.least(of(func() {
			for _, err := range sink.Write(ctx, events) {
				must.Report(t, err)
			}
		}))
	}
	return least.over(pods)
}

// receiver returns the URL of a receiver that accepts each request.
func receiver(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		accept(conn)
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

// accept answers the requests of a connection, whose bodies end with a brace.
func accept(conn net.Conn) {
	answer, in := []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), bufio.NewReader(conn)
	for {
		line, err := in.ReadSlice('}')
		if err != nil || !bytes.HasSuffix(line, []byte("}")) {
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
