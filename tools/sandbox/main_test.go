package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestParseFlags(t *testing.T) {
	tests := []struct {
		name, args, wantErr string
	}{
		{name: "all", args: "-dir d -seed s -keep -demo -audit -stdin -v -apiserver-arg --a=b -apiserver-arg=--c"},
		{name: "half", args: "-dir d -only etcd"},
		{name: "no dir", args: "-keep", wantErr: "-dir is required"},
		{name: "bad half", args: "-dir d -only kubelet", wantErr: "-only kubelet: must be etcd or apiserver"},
		{name: "seed without server", args: "-dir d -only etcd -seed s", wantErr: "need the API server"},
		{name: "rest", args: "-dir d more", wantErr: "unexpected arguments: more"},
		{name: "unknown", args: "-dir d -nope", wantErr: "not defined: -nope"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseFlags(strings.Fields(test.args), io.Discard)
			switch {
			case test.wantErr == "" && err != nil:
				t.Fatalf("unexpected error: %v", err)
			case test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)):
				t.Fatalf("got error %v, want one with %q", err, test.wantErr)
			}
		})
	}
}

func TestParseFlagsValues(t *testing.T) {
	o, err := parseFlags(strings.Fields("-dir d -only apiserver -apiserver-arg=--a=b -apiserver-arg=--c"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(o.dir) || !o.keep || !slices.Equal(o.apiserverArgs, []string{"--a=b", "--c"}) {
		t.Errorf("got %+v", o)
	}
	if o.runs(etcdHalf) || !o.runs(apiserverHalf) {
		t.Errorf("-only apiserver: runs the wrong half")
	}
}

func TestUntilEOF(t *testing.T) {
	r, w := io.Pipe()
	ctx := untilEOF(t.Context(), r)
	if ctx.Err() != nil {
		t.Fatal("ended before EOF")
	}
	w.Close()
	<-ctx.Done()
}

func TestDirIsReused(t *testing.T) {
	opts := options{dir: t.TempDir()}
	first, err := openDir(opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDir(opts); err == nil || !strings.Contains(err.Error(), "another sandbox uses it") {
		t.Fatalf("second sandbox on a used folder: got error %v", err)
	}
	config, err := os.ReadFile(first.file(adminConfig))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.close(true); err != nil {
		t.Fatal(err)
	}

	second, err := openDir(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer second.close(false)
	if second.ports != first.ports {
		t.Errorf("ports %+v became %+v", first.ports, second.ports)
	}
	again, err := os.ReadFile(second.file(adminConfig))
	if err != nil {
		t.Fatal(err)
	}
	if string(config) != string(again) {
		t.Error("the kubeconfig is not the same")
	}
}

func TestDirCloseLeavesWhatIsNotOurs(t *testing.T) {
	folder := t.TempDir()
	foreign := filepath.Join(folder, "foreign")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := openDir(options{dir: folder})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{adminConfig, limitedConfig, tokensFile} {
		info, err := os.Stat(d.file(name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	if err := d.close(false); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name() != "foreign" {
		t.Errorf("left: %v", left)
	}
}

func TestDirIsRemoved(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	d, err := openDir(options{dir: folder})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.close(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

// TestPortIsTaken shows that a port that another process has taken since it was chosen is chosen
// again, unless clients know it.
func TestPortIsTaken(t *testing.T) {
	d, err := openDir(options{dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.close(false)
	for _, port := range []int{d.ports.EtcdPeer, d.ports.APIServer} {
		l, err := listen(port)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	chosen := d.ports

	etcd, err := startEtcd(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer stopEtcd(etcd)
	l, err := d.listenAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if d.ports.EtcdPeer == chosen.EtcdPeer || d.ports.APIServer == chosen.APIServer {
		t.Errorf("ports %+v, of which two were taken, became %+v", chosen, d.ports)
	}
	for name, want := range map[string]string{adminConfig: d.serverURL(), etcdURLFile: d.etcdURL()} {
		data, err := os.ReadFile(d.file(name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), want) {
			t.Errorf("%s does not name %s", name, want)
		}
	}

	var known dir
	known.path = d.path
	if err := known.loadPorts(); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := known.listenAPIServer(ended); !errors.Is(err, syscall.EADDRINUSE) || known.ports != d.ports {
		t.Errorf("a known port that is taken: error %v, ports %+v became %+v", err, d.ports, known.ports)
	}
}
