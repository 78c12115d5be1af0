package docs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// kubectl executes the kubectl commands of the documents, so that they run on machines without it.
// The test binary is kubectl if it is called by that name. It knows
//
//	kubectl create deployment NAME --image=IMAGE
//	kubectl set image deployment/NAME CONTAINER=IMAGE
//	kubectl delete deployment NAME
func kubectl(args []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	deployments := client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace("default")
	ctx := context.Background()
	done, name := "", ""
	switch command := strings.Join(args[:min(2, len(args))], " "); {
	case command == "create deployment" && len(args) == 4:
		name, done = args[2], "created"
		_, err = deployments.Create(ctx, deployment(name, strings.TrimPrefix(args[3], "--image=")), metav1.CreateOptions{})
	case command == "set image" && len(args) == 4:
		name, done = strings.TrimPrefix(args[2], "deployment/"), "image updated"
		container, image, _ := strings.Cut(args[3], "=")
		patch, _ := json.Marshal(deploymentSpec(container, image)) // it consists of maps and strings
		_, err = deployments.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	case command == "delete deployment" && len(args) == 3:
		name = args[2]
		err = deployments.Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil {
			fmt.Printf("deployment.apps %q deleted\n", name)
		}
		return err
	default:
		return errors.New("the stand-in for kubectl does not know this command: add it to test/docs")
	}
	if err == nil {
		fmt.Printf("deployment.apps/%s %s\n", name, done)
	}
	return err
}

// deployment is what kubectl create deployment makes, as far as it is required.
func deployment(name, image string) *unstructured.Unstructured {
	container, _, _ := strings.Cut(image, ":")
	labels := map[string]any{"app": name}
	object := deploymentSpec(container, image)
	object["apiVersion"], object["kind"] = "apps/v1", "Deployment"
	object["metadata"] = map[string]any{"name": name, "labels": labels}
	spec := object["spec"].(map[string]any)
	spec["selector"] = map[string]any{"matchLabels": labels}
	spec["template"].(map[string]any)["metadata"] = map[string]any{"labels": labels}
	return &unstructured.Unstructured{Object: object}
}

func deploymentSpec(container, image string) map[string]any {
	containers := []any{map[string]any{"name": container, "image": image}}
	return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}}}
}
