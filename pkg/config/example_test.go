package config_test

import (
	"fmt"
	"time"

	"github.com/deltarouter/deltarouter/pkg/config"
)

// Parse reports all mistakes at once. Each problem has its position, its cause and its remedy.
func ExampleParse() {
	_, problems := config.Parse("config.yaml", []byte(`version: 1
sources:
  pods: {resource: pods}
sinks:
  out: {stdout: {}}
routes:
  - name: restarts
    form: [pods]
    to: [outt]
`), config.Policy{})
	fmt.Println(problems)
	// Output:
	// config.yaml:3:20: sources.pods.resource: must be [group/]version/resource, as in v1/pods or apps/v1/deployments; did you mean "v1/pods"?
	// config.yaml:8:5: routes[0].form: unknown key; did you mean "from"?
	// config.yaml:9:10: routes[0].to[0]: there is no sink "outt"; did you mean "out"?
}

// retries is a struct with the tags that the package comment describes.
type retries struct {
	Attempts int           `yaml:"attempts" default:"3" min:"1" max:"10"`
	Backoff  time.Duration `yaml:"backoff" default:"1s"`
	Mode     string        `yaml:"mode,required" enum:"fast safe"`
}

// A kind of handler or sink decodes its section of the configuration into a struct.
func ExampleNode_Decode() {
	node, _ := config.ParseNode("config.yaml", []byte("mode: safe\nbackoff: 250ms\n"))
	var r retries
	problems := node.Decode(&r)
	fmt.Printf("%+v %v\n", r, problems.Err())

	node, _ = config.ParseNode("config.yaml", []byte("mode: quick\nattempts: 99\n"))
	fmt.Println(node.Decode(&r))
	// Output:
	// {Attempts:3 Backoff:250ms Mode:safe} <nil>
	// config.yaml:1:7: mode: must be fast or safe, not "quick"
	// config.yaml:2:11: attempts: must be at most 10, not 99
}

// A rule that tags cannot express is a problem at the position of its key.
func ExampleNode_Problemf() {
	node, _ := config.ParseNode("config.yaml", []byte("from: 9\nto: 5\n"))
	fmt.Println(node.At("to").Problemf("must be greater than from (%d): swap them", 9))
	// Output: config.yaml:2:5: to: must be greater than from (9): swap them
}

// A secret never appears in output. Its value is read when it is used.
func ExampleSecret() {
	node, _ := config.ParseNode("config.yaml", []byte("token: s3cret\n"))
	var c struct {
		Token config.Secret `yaml:"token"`
	}
	problems := node.Decode(&c)
	value, err := c.Token.Value()
	fmt.Println(c, len(value), err, problems.Err())
	// Output: {[secret]} 6 <nil> <nil>
}

func ExampleSuggest() {
	fmt.Println(`there is no source "pod"` + config.Suggest("pod", []string{"pods", "nodes", "deployments"}))
	fmt.Println(`there is no source "secrets"` + config.Suggest("secrets", []string{"pods", "nodes"}))
	// Output:
	// there is no source "pod"; did you mean "pods"?
	// there is no source "secrets"; known are pods, nodes
}
