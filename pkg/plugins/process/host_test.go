package process_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestNothingGranted: without grants there is no socket.
func TestNothingGranted(t *testing.T) {
	// Guarantee: plugin-grants
	b := newBench(t)
	b.open("")
	defer b.close()
	for _, what := range []string{"ask.kv", "ask.lookup", "ask.log"} {
		contains(t, b.handle(what)[0], "not granted to this handler")
	}
	if found, _ := filepath.Glob(b.folder + "/*/host"); len(found) > 0 {
		t.Error(found)
	}
}

func TestKV(t *testing.T) {
	// Guarantee: plugin-grants
	b := newBench(t)
	b.open("allow: {kv: true}\nlimits: {kv: 1Ki}")
	defer b.close()
	contains(t, b.handle("ask.kv")[0], `"found":false`, `"set":true`, `"value":"x"`, `"there":true`, `"quota":"kv: over the handler's quota: limits.kv is reached"`,
		`"delete":true`, `"at once":true`, `"empty key":"kv: rpc error: code = InvalidArgument desc = a key has 1 to 512 bytes"`)
	contains(t, b.handle("ask.kv")[0], `"found":true`, `"value":"xx"`)
	contains(t, b.handle("ask.lookup")[0], `"count":"lookup: not granted to this handler`)
	contains(t, b.handle("ask.log")[0], `"log":"log: not granted to this handler`)
	if value, ok := b.memory.Get("n"); !ok || string(value) != "xx" {
		t.Errorf("the router keeps %q", value)
	}
}

// TestKVOfALostCall: the writes of a lost call are discarded.
func TestKVOfALostCall(t *testing.T) {
	// Guarantee: plugin-grants
	b := newBench(t)
	b.open("allow: {kv: true}")
	defer b.close()
	contains(t, b.handle("ask.kvcrash")[0], "fail ")
	if _, ok := b.memory.Get("lost"); ok {
		t.Error("it is kept")
	}
}

// TestKVOfFailedDeltas: the writes of deltas that fail or are retried are dropped, those of the
// other deltas of the call are kept.
func TestKVOfFailedDeltas(t *testing.T) {
	// Guarantee: call-atomic
	b := newBench(t)
	b.open("allow: {kv: true}")
	defer b.close()
	for _, names := range [][]string{{"ask.kvfail"}, {"ask.kvretry", "ask.kvfail"}, {"ask.kvfail", "ask.kv", "ask.kvretry", "ok", "ask.kv"}} {
		results := b.handle(names...)
		for i, name := range names {
			if strings.HasPrefix(results[i], "ok ") != (name == "ask.kv" || name == "ok") {
				t.Errorf("%q: %s: got %s", names, name, results[i])
			}
		}
	}
	if value, _ := b.memory.Get("n"); string(value) != "xx" {
		t.Errorf("the writes of the other deltas are %q", value)
	}
	for _, key := range []string{"kvfail", "kvretry", "in vain"} {
		if _, ok := b.memory.Get(key); ok {
			t.Errorf("%s is kept", key)
		}
	}
}

// TestLargeKV: a value may be larger than gRPC's 4 MiB.
func TestLargeKV(t *testing.T) {
	b := newBench(t)
	b.open("allow: {kv: true}\nlimits: {kv: 16Mi}")
	contains(t, b.handle("ask.large")[0], `{"large":6291456,"set":true}`)
	b.close()
}

// TestKVOfAMalformedAnswer: the writes of a call with a malformed answer are discarded.
func TestKVOfAMalformedAnswer(t *testing.T) {
	// Guarantee: plugin-grants
	b := newBench(t)
	b.openRole("raw", "tls: false\nallow: {kv: true}")
	contains(t, b.handle("keeptwice")[0], "fail ", "malformed answer")
	contains(t, b.handle("keep")[0], "ok ")
	for key, want := range map[string]bool{"keep": true, "keeptwice": false} {
		if _, ok := b.memory.Get(key); ok != want {
			t.Errorf("%s is kept: %v", key, ok)
		}
	}
	b.close()
}

// TestKVOfAnOldCall: a finished call has no access.
func TestKVOfAnOldCall(t *testing.T) {
	// Guarantee: plugin-grants
	b := newBench(t)
	b.open("allow: {kv: true, lookup: [pods.byNode]}")
	contains(t, b.handle("ask.now")[0], `{"kv":true,"lookup":2}`)
	contains(t, b.handle("ask.later")[0], `"kv":"kv: rpc error: code = FailedPrecondition desc = there is no such call of Handle any more"`,
		`"lookup":"lookup: rpc error: code = FailedPrecondition desc = there is no such call of Handle any more"`)
	if value, _ := b.memory.Get("when"); string(value) != "now" {
		t.Errorf("it is %q", value)
	}
	b.close()
}

func TestLookup(t *testing.T) {
	// Guarantee: plugin-grants
	b := newBench(t)
	b.open("allow: {lookup: [pods.byNode, nodes]}")
	defer b.close()
	contains(t, b.handle("ask.lookup")[0], `"objects":2`, `"count":2`, `"get":{"metadata":{"name":"n1"`,
		`"other index":"lookup: not granted to this handler`, `"other source":"lookup: not granted to this handler`,
		`"outside of a call":"lookup: rpc error: code = FailedPrecondition desc = there is no such call of Handle any more"`)
	contains(t, b.handle("ask.kv")[0], `"found":"kv: not granted`)
}

func TestLog(t *testing.T) {
	b := newBench(t)
	b.open("allow: {log: true}")
	defer b.close()
	contains(t, b.handle("ask.log")[0], `"log":true`)
	contains(t, b.log.String(), `level=ERROR msg="handler says" from=log text="said by the plugin"`)
}

// TestHostToken: access to the socket is not sufficient without the token.
func TestHostToken(t *testing.T) {
	// Guarantee: plugin-grants
	b := newBench(t)
	b.open("allow: {kv: true}")
	defer b.close()
	found := folders(t, b.folder)
	conn, err := grpc.NewClient("unix:"+found[0]+"/host", grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	for _, token := range []string{"", "Bearer ", "Bearer guessed"} {
		ctx := metadata.AppendToOutgoingContext(context.WithoutCancel(t.Context()), "authorization", token)
		_, err := pluginv1.NewHostClient(conn).KVGet(ctx, &pluginv1.KVGetRequest{Key: "n"})
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// TestRemoteLookup shows that a call with a look-up that has no answer is postponed, even if the
// plugin answers.
func TestRemoteLookup(t *testing.T) {
	b := newBench(t)
	b.env.Lookup = away{caches{}}
	b.open("allow: {kv: true, lookup: [pods.byNode]}")
	contains(t, b.handle("ask.lookup")[0], "retry ", "a look-up of the plugin has no answer: no leader")
	b.close()
}

// away is a cache in another process, which cannot be reached.
type away struct{ caches }

// Ask implements plugins.RemoteLookup.
func (away) Ask(context.Context, plugins.LookupQuery) (objects []*event.Object, count int, err error) {
	return nil, 0, plugins.Postpone(errors.New("no leader"), time.Minute)
}
