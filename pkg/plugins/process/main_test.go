package process_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/deltarouter/deltarouter/sdk/process"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
	"github.com/deltarouter/deltarouter/test/leaks"
)

// roles are the plugins in the test's binary, by the argument that starts them.
var roles = map[string]func(){
	"sdk":     func() { process.Serve(testPlugin()) },
	"silent":  func() { wait() },
	"garbage": func() { fmt.Println("hello\x1b[31m, I am starting"); wait() },
	"endless": func() { fmt.Print(strings.Repeat("x", 1<<20)); wait() },
	"flood":   func() { flood(os.Stdout, "x") },
	"drowned": func() { flood(os.Stderr, "line\n") },
	"core2":   func() { fmt.Println("2|1|unix|" + os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/x|grpc"); wait() },
	"ends":    func() { fmt.Fprintln(os.Stderr, "cannot find my licence"); os.Exit(3) },
	"tcp":     func() { listen("tcp", "127.0.0.1:0") },
	"outside": func() {
		listen("unix", filepath.Join(os.TempDir(), "..", "outside-"+hex.EncodeToString([]byte(os.Getenv("OUTSIDE")))))
	},
	"version9": func() { fmt.Println("1|9|unix|" + os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/x|grpc"); wait() },
	"netrpc":   func() { fmt.Println("1|1|unix|" + os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/x|netrpc"); wait() },
	"plain":    func() { _ = os.Unsetenv("PLUGIN_CLIENT_CERT"); process.Serve(testPlugin()) },
	"deaf":     func() { listen("unix", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "deaf")) },
	"leaves":   func() { fmt.Println("1|1|unix|" + os.Getenv("PLUGIN_UNIX_SOCKET_DIR") + "/x|grpc") },
	"sleep":    func() { <-time.After(time.Hour) },
	"router":   asRouter,
	"bare":     bare,
	"raw":      asRaw,
}

// bare serves without the SDK.
func bare() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: pluginv1.CookieKey, MagicCookieValue: pluginv1.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{1: {"handler": &barePlugin{}}},
		GRPCServer:       plugin.DefaultGRPCServer,
	})
}

type barePlugin struct{ plugin.NetRPCUnsupportedPlugin }

func (*barePlugin) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	process.NewServer(testPlugin()).Register(g)
	return nil
}

func (*barePlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// flood writes without end.
func flood(to io.Writer, text string) {
	for {
		_, _ = io.WriteString(to, strings.Repeat(text, 10_000))
	}
}

func wait() { _, _ = io.Copy(io.Discard, os.Stdin); select {} }

func listen(network, address string) {
	l, err := net.Listen(network, address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("1|1|%s|%s|grpc\n", network, l.Addr())
	wait()
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if role := roles[os.Args[1]]; role != nil {
			role()
			os.Exit(0)
		}
	}
	leaks.Main(m)
}

// self returns the path and the SHA-256 of this binary, computed once.
var self = sync.OnceValues(func() (string, string) {
	file, err := os.Executable()
	if err != nil {
		return err.Error(), ""
	}
	f, err := os.Open(file)
	if err != nil {
		return err.Error(), ""
	}
	defer f.Close()
	sum := sha256.New()
	_, _ = io.Copy(sum, f)
	return file, hex.EncodeToString(sum.Sum(nil))
})

// testPlugin acts by the name of each object.
func testPlugin() process.Plugin {
	var r *process.Router
	return process.Plugin{
		Name: "test", Version: "1.2.3", Schema: `{"type": "object", "properties": {"refuse": {"type": "boolean"}}}`,
		Setup: func(_ context.Context, router *process.Router) (process.Handler, error) {
			var cfg struct{ Refuse, Panic, Hang bool }
			if err := router.Config(&cfg); err != nil {
				return nil, err
			}
			switch {
			case cfg.Refuse:
				return nil, errors.New("this configuration is refused")
			case cfg.Panic:
				panic("at setup")
			case cfg.Hang:
				// ctx ends at the deadline of the call: a plugin that waited for it could still
				// answer in time
				select {}
			}
			r = router
			return func(ctx context.Context, d process.Delta) ([]process.Event, error) { return act(ctx, r, d) }, nil
		},
		Close: func() { fmt.Fprintln(os.Stderr, "closing in good order") },
	}
}

// act performs the action in the name of an object. The name is a verb, and after a dot a suffix
// that makes it unique.
func act(ctx context.Context, r *process.Router, d process.Delta) ([]process.Event, error) {
	one := func(data any) ([]process.Event, error) {
		return []process.Event{{Data: data, Type: "test", Subject: d.Name}}, nil
	}
	verb, rest, _ := strings.Cut(d.Name, ".")
	switch verb {
	case "crash":
		os.Exit(3)
	case "crashonce": // the file records the crash
		if f, err := os.OpenFile(os.Getenv("ONCE")+rest, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			f.Close()
			os.Exit(4)
		}
	case "objects":
		old := d.OldObject
		if len(old) == 0 {
			old = []byte("null")
		}
		return one(fmt.Appendf(nil, "[%s,%s]", d.Object, old))
	case "hang":
		select {}
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {} // the signal may take a moment
	case "panic":
		panic("on purpose")
	case "fail":
		return nil, errors.New("not this one")
	case "slow":
		<-time.After(30 * time.Millisecond)
	case "retry":
		return nil, process.Retry(errors.New("later"), 3*time.Second)
	case "drop":
		return nil, process.ErrDrop
	case "nojson":
		return one([]byte("{"))
	case "big":
		return one(strings.Repeat("x", 2<<20))
	case "many":
		return make([]process.Event, 100), nil
	case "pid":
		return one(os.Getpid())
	case "environ":
		wd, _ := os.Getwd()
		return one(map[string]any{"environ": os.Environ(), "wd": wd, "args": os.Args})
	case "print":
		fmt.Println("printed to stdout " + rest)
		fmt.Fprintln(os.Stderr, "printed to stderr "+rest)
	case "flood": // one line larger than any buffer, then many lines
		direct := os.NewFile(2, "stderr")
		_, _ = direct.WriteString(strings.Repeat("y", 1<<20) + "\n")
		fmt.Println(strings.Repeat("z", 1<<20))
		for i := range 1000 {
			fmt.Println("line", i)
			_, _ = fmt.Fprintln(direct, "line", i)
		}
	case "endless": // output without a line end
		for _, to := range []*os.File{os.Stdout, os.Stderr} {
			for range 64 {
				_, _ = to.WriteString(strings.Repeat("\xff\x1b", 64<<10))
			}
		}
	case "rewrite": // tries to overwrite its own program
		_, inherited := syscall.Pwrite(3, []byte("#!/bin/sh\n"), 0)
		_, again := os.OpenFile("/proc/self/exe", os.O_RDWR, 0)
		return one([]bool{inherited == nil, again == nil})
	case "spawn", "daemon":
		cmd := exec.Command("/proc/self/exe", "sleep")
		if verb == "daemon" { // it leaves the group and keeps the output open
			cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = &syscall.SysProcAttr{Setsid: true}, os.Stdout, os.Stderr
		}
		if stdin, err := cmd.StdinPipe(); err != nil || stdin == nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return one(cmd.Process.Pid)
	case "time":
		return one(map[string]any{"op": d.Op.String(), "since": d.Since, "late": d.Late, "repeat": d.Repeat, "suppressed": d.Suppressed, "traceParent": d.TraceParent, "with": string(d.With), "seen": d.Seen, "event": made(d.Event)})
	case "ask":
		return ask(ctx, r, rest)
	}
	return one(map[string]string{"name": d.Name, "op": d.Op.String(), "version": d.ResourceVersion})
}

// earlier is the context of a previous call.
var earlier context.Context

// ask calls functions of the router.
func ask(ctx context.Context, r *process.Router, what string) ([]process.Event, error) {
	answer := map[string]any{}
	note := func(key string, value any, err error) {
		if err != nil {
			value = err.Error()
		}
		answer[key] = value
	}
	switch what {
	case "kv":
		value, ok, err := r.KVGet(ctx, "n")
		note("found", ok, err)
		note("set", true, r.KVSet(ctx, "n", append(value, 'x'), 0))
		value, ok, err = r.KVGet(ctx, "n")
		note("value", string(value), err)
		note("there", ok, nil)
		note("quota", true, r.KVSet(ctx, "big", make([]byte, 2000), time.Hour))
		note("delete", true, r.KVDelete(ctx, "none"))
		note("at once", true, r.KVSet(context.WithoutCancel(context.Background()), "other", []byte("1"), time.Hour))
		note("empty key", true, r.KVSet(ctx, "", nil, 0))
	case "kvfail", "kvretry":
		note("set", true, errors.Join(r.KVSet(ctx, what, []byte("x"), 0), r.KVSet(ctx, "in vain", []byte("x"), 0)))
		if what == "kvfail" {
			return nil, errors.New("after a write")
		}
		return nil, process.Retry(errors.New("after a write"), time.Second)
	case "kvcrash":
		_ = r.KVSet(ctx, "lost", []byte("x"), 0)
		os.Exit(5)
	case "lookup":
		objects, err := r.Lookup(ctx, "pods", "byNode", "n1")
		note("objects", len(objects), err)
		n, err := r.Count(ctx, "pods", "byNode", "n1")
		note("count", n, err)
		n, err = r.Count(ctx, "pods", "byUser", "n1")
		note("other index", n, err)
		o, err := r.Get(ctx, "nodes", "", "n1")
		note("get", json.RawMessage(o), err)
		objects, err = r.Lookup(ctx, "secrets", "", "")
		note("other source", len(objects), err)
		n, err = r.Count(context.WithoutCancel(context.Background()), "nodes", "", "")
		note("outside of a call", n, err)
	case "large":
		note("set", true, r.KVSet(ctx, "large", make([]byte, 6<<20), 0))
		value, _, err := r.KVGet(ctx, "large")
		note("large", len(value), err)
	case "now", "later": // with the number of the first call
		if what == "now" {
			earlier = context.WithoutCancel(ctx) //nolint:fatcontext // that is the mistake
		}
		note("kv", true, r.KVSet(earlier, "when", []byte(what), 0))
		objects, err := r.Lookup(earlier, "pods", "byNode", "n1")
		note("lookup", len(objects), err)
	case "log":
		note("log", true, r.Log(ctx, process.Error, "said by the plugin"))
	}
	return []process.Event{{Data: answer}}, nil
}

func made(e *process.RouteEvent) any {
	if e == nil {
		return nil
	}
	return map[string]any{"id": e.ID, "type": e.Type, "source": e.Source, "subject": e.Subject, "route": e.Route, "time": e.Time, "data": json.RawMessage(e.Data)}
}
