package nats_test

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

// TestLongSubject: a server closes the connection if a subject is too long. A name or type of any
// length affects no other event of the batch. A template that is too long rejects its events one by
// one.
func TestLongSubject(t *testing.T) {
	s := embedded.Start(t, nil)
	st := stream(t, embedded.JetStream(t, s), jetstream.StreamConfig{Subjects: []string{"k8s.>"}})
	all := sinktest.Events(t, "web", 10, 10)
	all[0].Type, all[3].Type = strings.Repeat("x", 4096), strings.Repeat(".", 60_000)
	sink := open(t, "{servers: "+s.ClientURL()+", subject: 'k8s.{source}.{type}'}")
	if errs := sink.Write(t.Context(), all); errs != nil || len(kept(t, st)) != 10 {
		t.Errorf("%d of 10 are there: %s %.300v", len(kept(t, st)), sinktest.Verdicts(10, errs), errs)
	}
	if a, b := kept(t, st)[0].Subject, kept(t, st)[3].Subject; len(a) > 100 || len(b) > 100 || a == b {
		t.Errorf("the subjects are %s and %s", a, b)
	}
	long := open(t, fmt.Sprintf("{servers: %q, subject: 'k8s.%s.{type}'}", s.ClientURL(), strings.Repeat("x", 3800)))
	all = sinktest.Events(t, "db", 3, 10)
	all[1].Type = strings.Repeat("x", 100)
	errs := long.Write(t.Context(), all)
	if v := sinktest.Verdicts(3, errs); v != "drd" || !strings.Contains(errs[1].Error(), "subject has") {
		t.Errorf("got %s: %.300v", v, errs)
	}
}

// TestComplaints: a repeated message of a server is logged once.
func TestComplaints(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprint(conn, "INFO {\"headers\":true,\"max_payload\":1048576}\r\n")
				buf := make([]byte, 64<<10)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					fmt.Fprint(conn, strings.Repeat("PONG\r\n", bytes.Count(buf[:n], []byte("PING"))))
					if bytes.Contains(buf[:n], []byte("PUB ")) {
						fmt.Fprint(conn, strings.Repeat("-ERR 'Permissions Violation for Publish to \"\x1b[2J"+strings.Repeat("x", 1500)+"\"'\r\n", 1000))
					}
				}
			}()
		}
	}()
	var log bytes.Buffer
	env := plugins.SinkEnv{Env: plugins.Env{Name: "bus", Log: slog.New(slog.NewTextHandler(&log, nil))}}
	sink, err := nats.Kind().Open(t.Context(), plugintest.Node(t, "{servers: 'nats://"+l.Addr().String()+"', timeout: 300ms}"), env)
	must.Succeed(t, err)
	var errs []error
	begun := time.Now()
	for range 3 {
		errs = sink.Write(t.Context(), []event.Event{sinktest.Events(t, "web", 1, 10)[0]})
	}
	must.Report(t, sink.Close(t.Context()))
	// one line at once, one at the end, and one for each interval between them
	most := 2 + int(time.Since(begun)/(10*time.Second))
	if text := log.String(); strings.Count(text, "the server complains") > most || len(text) > 1500*most || strings.Contains(text, "\x1b") {
		t.Errorf("%d lines, %d bytes: %.300s", strings.Count(text, "\n"), len(text), text)
	}
	if len(errs) != 1 || len(plugins.Bound(errs[0]).Error()) > 1<<10 {
		t.Errorf("got %.300v", errs)
	}
}

// TestEchoedToken: no error contains the token, even if the server, or another host in its place,
// repeats it.
func TestEchoedToken(t *testing.T) {
	// Guarantee: answers-leak
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, `INFO {"server_id":"a","version":"2.10.0","max_payload":1000,"auth_required":true,"headers":true}`+"\r\n")
			line, _ := bufio.NewReader(conn).ReadString('\n') // an error is an empty line
			fmt.Fprintf(conn, "-ERR '%s'\r\n", strings.ReplaceAll(strings.TrimSpace(line), "'", ""))
			_ = conn.Close()
		}
	}()
	config := fmt.Sprintf("servers: nats://%s\nauth: {token: s3cr3t-t0ken}\n", listener.Addr())
	errs := open(t, config).Write(t.Context(), plugintest.Events(t)[:1])
	probed := nats.Kind().(plugins.Prober).Probe(t.Context(), plugintest.Node(t, config))
	for _, err := range append(errs, probed) {
		if err == nil || plugins.ClassOf(err) == plugins.Rejected || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "[redacted]") {
			t.Errorf("got %v", err)
		}
	}
}
