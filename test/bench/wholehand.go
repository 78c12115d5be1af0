package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

const (
	handRole = "hand"          // the argument that makes this command a hand-written program
	handDone = "updates_total" // its only metric
	// handTime bounds a call of the guest. On a busy machine a process can wait for long.
	handTime = 5 * time.Second
)

// handTask is the work of a hand-written program.
type handTask struct {
	URL      string // the server
	Address  string // to serve readiness and the metric
	Informer string // dynamic, typed, limit or post
	Objects  int    // of the server
	Filter   string // CEL; empty: none
	Module   string // the file of a guest; empty: none
	Post     string // of post: the receiver
	// Unbounded: the guest has no deadline, and would stop the program if it did not return.
	Unbounded bool
}

// hand is a hand-written program.
type hand struct {
	filter  cel.Program
	guest   *handGuest
	updates atomic.Int64
}

// serveHand runs a hand-written program until its process is stopped.
func serveHand(argument string) error {
	var task handTask
	if err := json.Unmarshal([]byte(argument), &task); err != nil {
		return err
	}
	switch task.Informer {
	case "limit":
		return serveLimit(task)
	case "post":
		return servePost(task)
	}
	ctx := context.Background()
	h, err := newHand(ctx, task)
	if err != nil {
		return err
	}
	informer, err := task.informer()
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, object any) { h.update(ctx, object) }})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	return serveProgress(task.Address, registration.HasSynced, h.updates.Load)
}

// serveProgress serves the readiness of a hand-written program, and its metric.
func serveProgress(address string, synced func() bool, updates func() int64) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !synced() {
			http.Error(w, "not synced", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "%s %d\n", handDone, updates()) })
	return http.ListenAndServe(address, mux) //nolint:gosec // only this command asks
}

func (t handTask) informer() (cache.SharedIndexInformer, error) {
	if t.Informer == "typed" {
		return typedInformer(t.URL)
	}
	return dynamicInformer(t.URL)
}

func newHand(ctx context.Context, task handTask) (h *hand, err error) {
	h = &hand{}
	if task.Filter != "" {
		if h.filter, err = handFilter(task.Filter); err != nil {
			return nil, err
		}
	}
	if task.Module != "" {
		if h.guest, err = newHandGuest(ctx, task.Module, !task.Unbounded); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func handFilter(text string) (cel.Program, error) {
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType))
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	return env.Program(ast, cel.EvalOptions(cel.OptOptimize))
}

// update handles an update. An error ends the program: its figures would be wrong.
func (h *hand) update(ctx context.Context, object any) {
	if err := h.handle(ctx, object); err != nil {
		fmt.Fprintln(os.Stderr, "bench: hand-written program:", err)
		os.Exit(1)
	}
	h.updates.Add(1)
}

func (h *hand) handle(ctx context.Context, object any) error {
	if h.filter != nil {
		fields, err := fieldsOf(object)
		if err != nil {
			return err
		}
		passes, _, err := h.filter.Eval(map[string]any{"object": fields})
		if err != nil {
			return err
		}
		if passes.Value() != true {
			return fmt.Errorf("the filter answers %v", passes)
		}
	}
	if h.guest == nil {
		return nil
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return h.guest.scan(ctx, text)
}

// fieldsOf returns an object in the form that CEL reads.
func fieldsOf(object any) (map[string]any, error) {
	switch o := object.(type) {
	case *unstructured.Unstructured:
		return o.Object, nil
	case *corev1.Pod:
		return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	}
	return nil, fmt.Errorf("unexpected %T", object)
}

// handGuest is the guest in wazero.
type handGuest struct {
	bounded     bool // it is stopped at a deadline
	memory      api.Memory
	alloc, call api.Function
}

func newHandGuest(ctx context.Context, file string, bounded bool) (*handGuest, error) {
	code, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(bounded))
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	compiled, err := r.CompileModule(ctx, code)
	if err != nil {
		return nil, err
	}
	if err := refuse(ctx, r, compiled); err != nil {
		return nil, err
	}
	m, err := r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
	if err != nil {
		return nil, err
	}
	return &handGuest{bounded, m.Memory(), m.ExportedFunction("alloc"), m.ExportedFunction("scan")}, nil
}

// refuse provides the functions of the router that the module imports for its other half, which is
// not called here.
func refuse(ctx context.Context, r wazero.Runtime, compiled wazero.CompiledModule) error {
	const abi = "rtr_v1"
	b := r.NewHostModuleBuilder(abi)
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		if module == abi {
			none := api.GoModuleFunc(func(context.Context, api.Module, []uint64) { panic(name + " is not there") })
			b.NewFunctionBuilder().WithGoModuleFunction(none, f.ParamTypes(), f.ResultTypes()).Export(name)
		}
	}
	_, err := b.Instantiate(ctx)
	return err
}

// scan passes an object to the guest.
func (g *handGuest) scan(ctx context.Context, text []byte) error {
	if g.bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, handTime)
		defer cancel()
	}
	at, err := g.alloc.Call(ctx, uint64(len(text)))
	if err != nil {
		return err
	}
	if !g.memory.Write(uint32(at[0]), text) { //nolint:gosec // an address of the guest
		return fmt.Errorf("the guest has no room for %d bytes", len(text))
	}
	found, err := g.call.Call(ctx, uint64(len(text)))
	if err != nil {
		return err
	}
	if found[0] == 0 {
		return fmt.Errorf("the guest finds nothing in %d bytes", len(text))
	}
	return nil
}
