package fence_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) {
	effort.Waiting(8)
	leaks.Main(m)
}

// patience limits the wait of a test. A successful test does not wait so long.
const patience = 2 * time.Minute

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	return conn
}

const lead = "w.lead"

// stream makes the stream of the tests.
func stream(t *testing.T, conn *nats.Conn, replicas int) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(conn)
	must.Succeed(t, err)
	var s jetstream.Stream
	until(t, "the stream exists", func() bool { // a new cluster may lose a request
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "W", Subjects: []string{"w.>"}, Storage: jetstream.FileStorage, Replicas: replicas, Retention: jetstream.WorkQueuePolicy,
			Discard: jetstream.DiscardNew, AllowAtomicPublish: true, AllowRollup: true,
		})
		return err == nil
	})
	return s
}

func config(conn *nats.Conn, holder string) fence.Config {
	return fence.Config{Conn: conn, Stream: "W", Lead: lead, Holder: holder, Log: slog.New(slog.DiscardHandler)}
}

func open(t *testing.T, conn *nats.Conn, holder string) *fence.Publisher {
	t.Helper()
	p, _, err := fence.Open(patient(t), config(conn, holder))
	must.Succeed(t, err)
	return p
}

// batch makes n messages with the bodies name-0, name-1 and so on.
func batch(name string, n int) []*nats.Msg {
	var all []*nats.Msg
	for i := range n {
		all = append(all, &nats.Msg{Subject: "w.m", Data: []byte(name + "-" + strconv.Itoa(i)), Header: nats.Header{}})
	}
	return all
}

func bodies(batches ...[]*nats.Msg) []string {
	var all []string
	for _, b := range batches {
		for _, m := range b {
			all = append(all, string(m.Data))
		}
	}
	return all
}

// stored returns the bodies of the messages in the stream, in order, without the lead record.
func stored(t *testing.T, s jetstream.Stream) []string {
	t.Helper()
	info, err := s.Info(patient(t))
	must.Succeed(t, err)
	var all []string
	for n := info.State.FirstSeq; n <= info.State.LastSeq && info.State.Msgs > 0; n++ {
		var m *jetstream.RawStreamMsg
		until(t, "the stream can be read", func() bool { // it may have no leader at the moment
			m, err = s.GetMsg(patient(t), n)
			return err == nil || errors.Is(err, jetstream.ErrMsgNotFound)
		})
		if err == nil && m.Subject != lead {
			all = append(all, string(m.Data))
		}
	}
	return all
}

// until waits for a condition outside of the package under test.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end, again := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-end:
			t.Fatal("waited in vain until " + what)
		}
	}
}

func last(t *testing.T, s jetstream.Stream) uint64 {
	info, err := s.Info(patient(t))
	must.Succeed(t, err)
	return info.State.LastSeq
}
