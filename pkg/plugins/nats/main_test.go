package nats_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/nats"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/sinktest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func stream(t *testing.T, js jetstream.JetStream, config jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	if config.Name == "" {
		config.Name = "k8s"
	}
	if config.Subjects == nil {
		config.Subjects = []string{"k8s.>"}
	}
	s, err := js.CreateStream(t.Context(), config)
	must.Succeed(t, err)
	return s
}

// kept returns the messages of a stream, in order.
func kept(t *testing.T, s jetstream.Stream) []*jetstream.RawStreamMsg {
	t.Helper()
	info, err := s.Info(t.Context())
	must.Succeed(t, err)
	var all []*jetstream.RawStreamMsg
	for n := info.State.FirstSeq; n <= info.State.LastSeq && info.State.Msgs > 0; n++ {
		m, err := s.GetMsg(t.Context(), n)
		must.Succeed(t, err)
		all = append(all, m)
	}
	return all
}

func open(t *testing.T, config string) plugins.Sink {
	t.Helper()
	return sinktest.Open(t, nats.Kind(), config)
}

func url(w *sinktest.Wire) string { return "nats://" + w.Addr().String() }
