// Command sandbox runs a real Kubernetes API server and its etcd in one process, with no containers
// and no network beyond loopback. There is no kubelet, no scheduler and nearly no controller: an
// object keeps its state until a client writes it again, which is what tests need. Namespaces and
// pods are the exception (see controllers.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The exit codes of the command.
const (
	exitOK    = 0
	exitFail  = 1
	exitUsage = 2
)

// options is the command line.
type options struct {
	dir           string
	seed          string
	only          string
	keep          bool
	demo          bool
	audit         bool
	stdin         bool
	verbose       bool
	apiserverArgs []string
}

// The two halves, and the values of -only.
const (
	etcdHalf      = "etcd"
	apiserverHalf = "apiserver"
)

// runs reports whether this process runs the half.
func (o options) runs(half string) bool { return o.only == "" || o.only == half }

func main() {
	opts, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(exitOK)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(exitUsage)
	}
	os.Exit(runMain(opts))
}

// runMain is main without os.Exit, so that deferred calls run.
func runMain(opts options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if opts.stdin {
		ctx = untilEOF(ctx, os.Stdin)
	}
	terminal, err := redirectStderr(opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		return exitFail
	}
	if err := run(ctx, opts, os.Stdout); err != nil {
		fmt.Fprintln(terminal, "sandbox:", err)
		return exitFail
	}
	return exitOK
}

// parseFlags parses the command line. It reports syntax errors on output. The error repeats such a
// report, or describes an invalid value.
func parseFlags(args []string, output io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	fs.SetOutput(output)
	fs.StringVar(&o.dir, "dir", "", "`DIR` for the data, the keys, the log and the kubeconfig (required)")
	fs.StringVar(&o.seed, "seed", "", "apply the YAML manifests in `FOLDER` before ready")
	fs.StringVar(&o.only, "only", "", "run one `HALF`: etcd or apiserver; implies -keep, as the other half needs DIR")
	fs.BoolVar(&o.keep, "keep", false, "leave the data in DIR when stopped; what is in DIR is always used at start")
	fs.BoolVar(&o.demo, "demo", false, "keep changing pods and nodes the way a live cluster does")
	fs.BoolVar(&o.audit, "audit", false, "write each request to DIR/audit.log, except the sandbox's own")
	fs.BoolVar(&o.stdin, "stdin", false, "stop when stdin ends, so that a parent that dies leaves no orphan")
	fs.BoolVar(&o.verbose, "v", false, "log to stderr, not to DIR/log")
	fs.Func("apiserver-arg", "a `FLAG` more for kube-apiserver, as --name=value; can be repeated", func(s string) error {
		o.apiserverArgs = append(o.apiserverArgs, s)
		return nil
	})
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	return o, o.validate(fs.Args())
}

func (o *options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected arguments: %s", strings.Join(rest, " "))
	case o.dir == "":
		return errors.New("-dir is required")
	case !slices.Contains([]string{"", etcdHalf, apiserverHalf}, o.only):
		return fmt.Errorf("-only %s: must be %s or %s", o.only, etcdHalf, apiserverHalf)
	case o.only == etcdHalf && (o.seed != "" || o.demo || o.audit || len(o.apiserverArgs) > 0):
		return errors.New("-only etcd: -seed, -demo, -audit and -apiserver-arg need the API server")
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = dir
	o.keep = o.keep || o.only != ""
	return nil
}

// untilEOF returns a context that ends with r.
func untilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, r) // an error ends it as EOF does
	}()
	return ctx
}

// redirectStderr redirects file descriptor 2 to DIR/log, because kube-apiserver and etcd each have
// several loggers that write to stderr in their own way. It returns the original stderr, for
// messages to the user; a crash is written to both.
func redirectStderr(opts options) (*os.File, error) {
	if opts.verbose {
		return os.Stderr, nil
	}
	if err := os.MkdirAll(opts.dir, 0o700); err != nil {
		return nil, err
	}
	// O_APPEND: both halves, and the next start, write to the same file.
	log, err := os.OpenFile(filepath.Join(opts.dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	old, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keep stderr: %w", err)
	}
	terminal := os.NewFile(uintptr(old), "stderr")
	if err := unix.Dup2(int(log.Fd()), 2); err != nil {
		return nil, fmt.Errorf("redirect stderr: %w", err)
	}
	return terminal, debug.SetCrashOutput(terminal, debug.CrashOptions{})
}
