// Package sandboxtest gives tests a real Kubernetes API server and etcd: bin/sandbox, built from
// the folder sandbox of the repository.
//
//	func TestMain(m *testing.M) { sandboxtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		s := sandboxtest.Start(t)     // one for all tests of the package
//		ns := s.Namespace(t)          // one for this test
//		s.Apply(t, ns, "…YAML…")
//		run(s.Kubeconfig(), ns)
//	}
//
// A test that stops servers or compacts etcd must have a sandbox of its own, by Borrow. One that
// makes cluster-wide objects that disturb other tests must start its own with New.
package sandboxtest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// userAgent marks the requests of this package, which Requests leaves out.
const userAgent = "sandboxtest"

// Options are the options of a sandbox. The zero value is valid.
type Options struct {
	// Seed is a folder of manifests that are applied before the sandbox is ready.
	Seed string
	// Demo changes the seeded objects all the time.
	Demo bool
	// APIServerArgs are additional flags of kube-apiserver, as --name=value.
	APIServerArgs []string
}

// Sandbox is a running API server and its etcd, each in its own process. Its methods may be called
// from several goroutines, except those that stop and start.
type Sandbox struct {
	dir     string
	bin     string
	opts    Options
	private bool
	limited *limited // nil: the user "limited"

	etcd      *process
	apiserver *process

	http   *http.Client
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// shared is the sandbox of Start. It has to be a variable: TestMain, which stops it, and the tests,
// which start it, share nothing else.
var shared struct {
	sync.Mutex
	sandbox *Sandbox
	err     error
}

// Runner is the interface of *testing.M; leaks.Main takes the same.
type Runner interface{ Run() int }

type runner struct{ m Runner }

// Run runs the tests, then stops the shared sandbox.
func (r runner) Run() int {
	defer stopShared()
	defer idle.close()
	return r.m.Run()
}

// Wrap returns a Runner that stops the shared sandbox after the tests, for a TestMain that does
// more than Main: leaks.Main(sandboxtest.Wrap(m)).
func Wrap(m Runner) Runner { return runner{m} }

// Main is the TestMain of a package that uses Start.
func Main(m *testing.M) { os.Exit(Wrap(m).Run()) }

// Start returns the sandbox that all tests of the package share. The first call starts it.
func Start(tb testing.TB) *Sandbox {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.sandbox == nil && shared.err == nil {
		shared.sandbox, shared.err = startShared()
	}
	if shared.err != nil {
		tb.Fatalf("sandboxtest: %v", shared.err)
	}
	return shared.sandbox
}

// StartNamespace returns the shared sandbox, and a namespace of it for this test.
func StartNamespace(tb testing.TB) (s *Sandbox, namespace string) {
	tb.Helper()
	s = Start(tb)
	return s, s.Namespace(tb)
}

func startShared() (*Sandbox, error) {
	dir, err := os.MkdirTemp("", "sandbox-")
	if err != nil {
		return nil, err
	}
	s, err := start(dir, Options{})
	if err != nil {
		_ = os.RemoveAll(dir)
	}
	return s, err
}

func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.sandbox != nil {
		shared.sandbox.close()
		_ = os.RemoveAll(shared.sandbox.dir)
		shared.sandbox = nil
	}
}

// New starts a sandbox for this test only, and ends it with the test. It waits while too many
// parallel tests have sandboxes of their own.
func New(tb testing.TB, opts Options) *Sandbox {
	tb.Helper()
	private.admit(tb)
	s, err := start(tb.TempDir(), opts)
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	s.private = true
	tb.Cleanup(s.close)
	return s
}

// Borrow is New with a sandbox that another test may have used before: its namespaces and their
// objects are still there. So it must not be used for objects without a namespace, nor for rights.
// Starting a sandbox takes six seconds of a processor.
func Borrow(tb testing.TB) *Sandbox {
	tb.Helper()
	private.admit(tb)
	s, err := idle.take()
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	tb.Cleanup(func() { idle.give(s) })
	return s
}

// Launch is New without a test: the caller must call Close. The data is in dir.
func Launch(dir string, opts Options) (*Sandbox, error) {
	s, err := start(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("sandboxtest: %w", err)
	}
	s.private = true
	return s, nil
}

// Close ends a sandbox of Launch.
func (s *Sandbox) Close() { s.close() }

// start starts both halves. The API server is a separate process, so that a test can kill it
// without etcd.
func start(dir string, opts Options) (_ *Sandbox, err error) {
	bin, err := ensureBinary()
	if err != nil {
		return nil, err
	}
	if opts.Seed != "" {
		if opts.Seed, err = filepath.Abs(opts.Seed); err != nil {
			return nil, err
		}
	}
	s := &Sandbox{dir: dir, bin: bin, opts: opts}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.startEtcd(); err != nil {
		return nil, err
	}
	if err := s.startAPIServer(); err != nil {
		return nil, err
	}
	s.opts.Seed = "" // a restart keeps the changes of the test
	return s, s.connect()
}

func (s *Sandbox) startEtcd() (err error) {
	s.etcd, err = startProcess(s.bin, s.dir, "-only", "etcd")
	return err
}

func (s *Sandbox) startAPIServer() (err error) {
	args := []string{"-only", "apiserver", "-audit"}
	if s.opts.Seed != "" {
		args = append(args, "-seed", s.opts.Seed)
	}
	if s.opts.Demo {
		args = append(args, "-demo")
	}
	for _, arg := range s.opts.APIServerArgs {
		args = append(args, "-apiserver-arg="+arg)
	}
	s.apiserver, err = startProcess(s.bin, s.dir, args...)
	return err
}

// connect makes the clients of this package.
func (s *Sandbox) connect() error {
	cfg := s.RESTConfig()
	cfg.UserAgent = userAgent
	var err error
	if s.http, err = rest.HTTPClientFor(cfg); err != nil {
		return err
	}
	if s.client, err = dynamic.NewForConfigAndClient(cfg, s.http); err != nil {
		return err
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, s.http)
	if err != nil {
		return err
	}
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	return nil
}

// close kills both processes: their data is discarded anyway.
func (s *Sandbox) close() {
	s.apiserver.kill()
	s.etcd.kill()
	if s.http != nil {
		utilnet.CloseIdleConnectionsFor(s.http.Transport)
	}
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (s *Sandbox) Kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// LimitedKubeconfig is the path of the kubeconfig of the user "limited", or of that of WithUser.
// Without Grant the user has no right beyond discovery.
func (s *Sandbox) LimitedKubeconfig() string {
	if s.limited != nil {
		return s.limited.kubeconfig
	}
	return filepath.Join(s.dir, "kubeconfig-limited")
}

// RESTConfig returns the administrator's configuration, without a client-side rate limit; the
// caller may change it.
func (s *Sandbox) RESTConfig() *rest.Config { return restConfig(s.Kubeconfig()) }

// LimitedRESTConfig returns the configuration of LimitedKubeconfig.
func (s *Sandbox) LimitedRESTConfig() *rest.Config { return restConfig(s.LimitedKubeconfig()) }

// Dynamic is an administrator's client whose requests are left out of Requests.
func (s *Sandbox) Dynamic() dynamic.Interface { return s.client }

func restConfig(path string) *rest.Config {
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		panic(fmt.Sprintf("sandboxtest: a kubeconfig of our own making: %v", err))
	}
	cfg.QPS = -1
	return cfg
}

// get reads a path of the API server, as the administrator.
func (s *Sandbox) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.RESTConfig().Host+path, nil)
	if err != nil {
		return nil, err
	}
	return s.http.Do(req)
}

// logTail returns the end of the sandbox's log for an error message.
func logTail(dir string) string {
	const size = 4096
	data, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-size):])
}
