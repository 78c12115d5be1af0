package owner

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
)

func TestMain(m *testing.M) {
	effort.Waiting(8)
	leaks.Main(m)
}

// patience limits the wait of a test. A successful test does not wait so long.
const patience = time.Minute

func bucket(t *testing.T, js jetstream.JetStream, name string) jetstream.KeyValue {
	t.Helper()
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name})
	must.Succeed(t, err)
	return kv
}
