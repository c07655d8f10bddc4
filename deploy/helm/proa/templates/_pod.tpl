{{- /* The template of a pod. root: what templates get. role: whole, a pod with the whole model; or of a model on several
hosts leader, which serves, and worker, which runs sshd for it (deploy/mpi/proa-host). */}}
{{- define "proa.pod" -}}
{{- $values := .root.Values }}
{{- $serves := ne .role "worker" }}
{{- $several := ne .role "whole" -}}
metadata:
  labels:
    {{- include "proa.selector" .root | nindent 4 }}
  {{- if or $values.podAnnotations (and $serves $values.metrics.annotations) }}
  annotations:
    {{- if and $serves $values.metrics.annotations }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "8002"
    prometheus.io/path: /metrics
    {{- end }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ add $values.drainSeconds (ternary 20 10 $several) }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
    fsGroup: 1000
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- with $values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: proa
      image: "{{ $values.image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      workingDir: /cache
      {{- if $several }}
      command: ["proa-host"]
      {{- end }}
      args:
        - serve
        - {{ $values.model | quote }}
        {{- if $values.gpus }}
        - --device
        - cuda
        {{- end }}
        - --exit-timeout-secs
        - {{ $values.drainSeconds | quote }}
        - --log-format
        - json
        {{- if $values.apiKeysSecret }}
        - --api-key-file
        - /keys/keys
        {{- end }}
        {{- range $values.args }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: HOME
          value: /cache
        - name: HF_HOME
          value: /cache/huggingface
        - name: XDG_CACHE_HOME
          value: /cache
        {{- if $values.hfTokenSecret }}
        - name: HF_TOKEN
          valueFrom:
            secretKeyRef:
              name: {{ $values.hfTokenSecret }}
              key: token
        {{- end }}
        {{- if $several }}
        - name: PROA_HOST_RANKS
          value: {{ max 1 (int $values.gpus) | quote }}
        - name: GROUP_START
          value: {{ $values.startupSeconds | quote }}
        - name: GROUP_DRAIN
          value: {{ $values.drainSeconds | quote }}
        {{- end }}
      ports:
        {{- if $serves }}
        - name: http
          containerPort: 8000
        - name: grpc
          containerPort: 8001
        - name: metrics
          containerPort: 8002
        {{- else }}
        - name: ssh
          containerPort: 2222
        {{- end }}
      {{- if $serves }}
      # Ports are open when all models are loaded.
      startupProbe:
        httpGet:
          path: /v2/health/ready
          port: http
        periodSeconds: 10
        failureThreshold: {{ div (add $values.startupSeconds 9) 10 }}
      readinessProbe:
        httpGet:
          path: /v2/health/ready
          port: http
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 2
      {{- else }}
      readinessProbe:
        tcpSocket:
          port: ssh
        periodSeconds: 5
      {{- end }}
      {{- if not $several }}
      livenessProbe:
        httpGet:
          path: /v2/health/live
          port: http
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      {{- else if $serves }}
      # No livenessProbe: proa-group restarts a server that hangs, and no port is open while it loads again.
      {{- end }}
      lifecycle:
        preStop:
          exec:
            {{- if $serves }}
            # until no service sends requests here any more; then SIGTERM comes
            command: ["sleep", "5"]
            {{- else }}
            # All pods of a group end together: its ranks are needed until the leader has answered the last request.
            command: ["sleep", "{{ add $values.drainSeconds 12 }}"]
            {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: ["ALL"]
      resources:
        {{- $resources := deepCopy $values.resources }}
        {{- if $values.gpus }}
        {{- $limits := merge (dict $values.gpuResource $values.gpus) (default dict $resources.limits) }}
        {{- $_ := set $resources "limits" $limits }}
        {{- end }}
        {{- toYaml $resources | nindent 8 }}
      volumeMounts:
        - name: cache
          mountPath: /cache
        - name: tmp
          mountPath: /tmp
        - name: shm
          mountPath: /dev/shm
        {{- if $values.apiKeysSecret }}
        - name: keys
          mountPath: /keys
          readOnly: true
        {{- end }}
        {{- if $several }}
        - name: host-keys
          mountPath: /host-keys
          readOnly: true
        {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: 1Gi
    - name: shm
      emptyDir:
        medium: Memory
        sizeLimit: {{ $values.sharedMemory }}
    {{- if $values.apiKeysSecret }}
    - name: keys
      secret:
        secretName: {{ $values.apiKeysSecret }}
        defaultMode: 0440
    {{- end }}
    {{- if $several }}
    - name: host-keys
      secret:
        secretName: {{ $values.hostKeysSecret }}
        defaultMode: 0440
    {{- end }}
    {{- if $values.cache.existingClaim }}
    - name: cache
      persistentVolumeClaim:
        claimName: {{ $values.cache.existingClaim }}
    {{- end }}
{{- end }}
