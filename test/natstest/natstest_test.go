package natstest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/test/leaks"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

// panicsVariable makes the test binary start a server and panic.
const panicsVariable = "NATSTEST_PANICS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(panicsVariable); dir != "" {
		c, err := natstest.Launch(dir, natstest.Config{})
		if err != nil {
			panic(err)
		}
		fmt.Println(c.Servers[0].Addr())
		panic("on purpose")
	}
	leaks.Main(m)
}

// TestCluster shows that a stream of three replicas keeps its messages while servers are killed,
// paused, and started again.
func TestCluster(t *testing.T) {
	c := natstest.Start(t, natstest.Config{Servers: 3})
	_, js := c.Connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
	must.Succeed(t, err)
	publish := func() {
		t.Helper()
		for {
			attempt, done := context.WithTimeout(ctx, 2*time.Second)
			_, err := js.Publish(attempt, "s", nil)
			if done(); err == nil {
				return
			} else if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	publish()
	leader := c.Leader(t, js, "S")
	leader.Kill()
	if leader.Running() {
		t.Error("it runs after Kill")
	}
	publish()
	must.Succeed(t, leader.Restart())
	c.WaitReady(t)
	leader = c.Leader(t, js, "S")
	leader.Pause()
	publish()
	leader.Continue()
	c.WaitReady(t)
	info, err := stream.Info(ctx)
	must.Succeed(t, err)
	if info.State.Msgs < 3 {
		t.Errorf("%d messages, want at least 3", info.State.Msgs)
	}
	must.Succeed(t, leader.Shutdown())
	if leader.Running() {
		t.Error("it runs after Shutdown")
	}
}

// TestUsers shows that the permissions of users apply, also through proxies.
func TestUsers(t *testing.T) {
	c := natstest.Start(t, natstest.Config{Users: []natstest.User{
		{Name: "all", Password: "1"}, {Name: "some", Password: "2", Publish: []string{"a", "b.>"}, Subscribe: []string{"_INBOX.>"}},
	}})
	proxies, url := c.Proxy(t)
	denied := make(chan error, 1)
	conn, err := nats.Connect(url, nats.UserInfo("some", "2"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case denied <- err:
		default:
		}
	}))
	must.Succeed(t, err)
	defer conn.Close()
	must.Succeed(t, errors.Join(conn.Publish("b.c", nil), conn.Publish("c", nil)))
	select {
	case err := <-denied:
		must.Fail(t, err, `for Publish to "c"`)
	case <-time.After(time.Minute):
		t.Error("a publish without the permission is not refused")
	}
	if proxies[0].Connections() != 1 {
		t.Errorf("%d connections through the proxy, want 1", proxies[0].Connections())
	}
}

// TestParentDeath shows that a server ends with the process that started it, also by a panic.
func TestParentDeath(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), panicsVariable+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must.Succeed(t, err)
	must.Fail(t, cmd.Wait(), "exit status 2")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", line[:len(line)-1])
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server still runs")
		}
	}
}
